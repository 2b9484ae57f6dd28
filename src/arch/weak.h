/* SPDX-License-Identifier: MIT */
/* Marks a symbol that the compiler refers to by itself as weak: it is null where nothing defines it. */
#ifndef CPUSLAB_ARCH_WEAK_H
#define CPUSLAB_ARCH_WEAK_H

#define ARCH_WEAK(symbol) __asm__(".weak " #symbol)

#endif
