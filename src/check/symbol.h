/* SPDX-License-Identifier: MIT */
/*
 * check/symbol: what a code address is called.
 *
 * Reads the dynamic symbols of the module that the dynamic linker has mapped there, through
 * _dl_find_object() (glibc 2.35), which takes no lock: dladdr() takes the linker's, whose holder may be
 * waiting for this library.  What a program does not export has no name here; module and offset are what
 * addr2line(1) takes.
 *
 * Allocates nothing; no lock.  The text stays as long as the module does.
 */
#ifndef CPUSLAB_CHECK_SYMBOL_H
#define CPUSLAB_CHECK_SYMBOL_H

#include <stdbool.h>
#include <stdint.h>

struct symbol {
	const char *module; /* its file's name; NULL when the address lies in none */
	uintptr_t module_offset;
	const char *function; /* NULL when it is not known */
	uintptr_t function_offset, function_bytes;
};
void symbol_find(uintptr_t address, struct symbol *symbol);

/* The module that an address lies in. */
struct module {
	uintptr_t start, end;
	const unsigned char *unwind_table; /* its .eh_frame_hdr; NULL for none */
	bool program;                      /* the program itself, not a library */
};
/* False when the address lies in none, or the C library cannot tell. */
bool symbol_module(uintptr_t address, struct module *module);

#endif
