/* SPDX-License-Identifier: MIT */
/* For kernel sources in user space: the linker exports a program's symbols. */
#pragma GCC system_header /* beside macros of these names: linux/compiler.h */
#ifndef CPUSLAB_LINUX_EXPORT_H
#define CPUSLAB_LINUX_EXPORT_H

/* Each only repeats a declaration, which must exist. */
#define EXPORT_SYMBOL(symbol)                      extern __typeof__(symbol) symbol
#define EXPORT_SYMBOL_GPL(symbol)                  EXPORT_SYMBOL(symbol)
#define EXPORT_SYMBOL_NS(symbol, space)            EXPORT_SYMBOL(symbol)
#define EXPORT_SYMBOL_NS_GPL(symbol, space)        EXPORT_SYMBOL(symbol)
#define EXPORT_SYMBOL_FOR_MODULES(symbol, modules) EXPORT_SYMBOL(symbol)

#endif
