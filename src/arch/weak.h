/* SPDX-License-Identifier: MIT */
/* Makes a symbol that the compiler itself refers to weak: null where nothing defines it. */
#ifndef CPUSLAB_ARCH_WEAK_H
#define CPUSLAB_ARCH_WEAK_H

#define ARCH_WEAK(symbol) __asm__(".weak " #symbol)

#endif
