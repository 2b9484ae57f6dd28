/* SPDX-License-Identifier: MIT */
/* arch/symbol: what the assembler is told of names.  Includes nothing: it stands in front of every file. */
#ifndef CPUSLAB_ARCH_SYMBOL_H
#define CPUSLAB_ARCH_SYMBOL_H

/* From here on a name, also one that the compiler chooses itself, means the library's own hidden function. */
#define ARCH_MEANS(name, own) __asm__(".hidden " #own "\n" #name " = " #own "\n")

#endif
