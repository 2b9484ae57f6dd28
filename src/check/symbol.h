/* SPDX-License-Identifier: MIT */
/*
 * check/symbol: names code addresses.
 *
 * Reads the dynamic symbols of the module that the dynamic linker has mapped at the address, through
 * _dl_find_object() (glibc 2.35), which takes no lock: dladdr() takes the linker's, whose holder may be
 * waiting for this library.  Functions that a program does not export have no name here; module and offset
 * are what addr2line(1) takes.
 *
 * Allocates nothing; takes no lock.  The text lives as long as the module.
 */
#ifndef CPUSLAB_CHECK_SYMBOL_H
#define CPUSLAB_CHECK_SYMBOL_H

#include <stdbool.h>
#include <stdint.h>

struct symbol {
	const char *module; /* file name; NULL when the address lies in no module */
	uintptr_t module_offset;
	const char *function; /* NULL when unknown */
	uintptr_t function_offset, function_bytes;
};
void symbol_find(uintptr_t address, struct symbol *symbol);

/* The module that an address lies in. */
struct module {
	uintptr_t start, end;
	const unsigned char *unwind_table; /* its .eh_frame_hdr, or NULL */
	bool program;                      /* the program itself, not a library */
};
/* Returns false when the address lies in no module, or the C library cannot tell. */
bool symbol_module(uintptr_t address, struct module *module);

#endif
