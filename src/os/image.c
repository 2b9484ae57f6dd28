/* SPDX-License-Identifier: MIT */
#include "os/image.h"

#include <elf.h>
#include <link.h>
#include <stddef.h>
#include <string.h>

/*
 * What a name is looked up in.  The names lie behind the symbols, as all linkers place them; what may lie
 * between them would not be found by the names' length, and read as symbols of no name.
 */
struct tables {
	uintptr_t shift; /* from addresses as linked to those in memory */
	const ElfW(Sym) * symbols;
	const char *names;
	size_t names_bytes;
};

static const ElfW(Dyn) * find_dynamic(uintptr_t base, struct tables *tables)
{
	const ElfW(Ehdr) *header = (const ElfW(Ehdr) *)base;
	const ElfW(Phdr) *part = (const ElfW(Phdr) *)(base + header->e_phoff), *end = part + header->e_phnum;
	const ElfW(Dyn) *dynamic = NULL;

	/* The first part that is loaded has the header; the others follow. */
	for (tables->shift = 0; part < end; part++) {
		if (part->p_type == PT_LOAD && !tables->shift)
			tables->shift = base + part->p_offset - part->p_vaddr;
		if (part->p_type == PT_DYNAMIC)
			dynamic = (const ElfW(Dyn) *)part->p_vaddr;
	}
	return dynamic ? (const ElfW(Dyn) *)((uintptr_t)dynamic + tables->shift) : NULL;
}

/* Returns how many symbols there are, at most. */
static size_t find_tables(uintptr_t base, struct tables *tables)
{
	uintptr_t symbols = 0, names = 0;

	for (const ElfW(Dyn) *entry = find_dynamic(base, tables); entry && entry->d_tag != DT_NULL; entry++)
		if (entry->d_tag == DT_SYMTAB)
			symbols = entry->d_un.d_ptr;
		else if (entry->d_tag == DT_STRTAB)
			names = entry->d_un.d_ptr;
		else if (entry->d_tag == DT_STRSZ)
			tables->names_bytes = entry->d_un.d_val;
	/* A dynamic linker may have written addresses in memory over those of an image. */
	uintptr_t shift = symbols < base ? tables->shift : 0;

	tables->symbols = (const ElfW(Sym) *)(symbols + shift);
	tables->names = (const char *)(names + shift);
	return symbols && names > symbols ? (names - symbols) / sizeof *tables->symbols : 0;
}

uintptr_t image_symbol(uintptr_t base, const char *name)
{
	struct tables tables = {0};
	size_t count = base ? find_tables(base, &tables) : 0;

	for (const ElfW(Sym) *symbol = tables.symbols; count; symbol++, count--)
		if (symbol->st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbol->st_info) == STT_FUNC &&
		    symbol->st_name < tables.names_bytes && strcmp(tables.names + symbol->st_name, name) == 0)
			return tables.shift + symbol->st_value;
	return 0;
}
