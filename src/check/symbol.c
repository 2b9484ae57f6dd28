/* SPDX-License-Identifier: MIT */
#include "check/symbol.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <string.h>

#include "os/os.h"

#ifdef DLFO_STRUCT_HAS_EH_DBASE
/* Absent from C libraries older than the headers. */
extern __typeof__(_dl_find_object) _dl_find_object __attribute__((weak));

static bool find_object(uintptr_t address, struct dl_find_object *object)
{
	return &_dl_find_object && os_libc_is_whole() && _dl_find_object((void *)address, object) == 0;
}
#else
struct dl_find_object {
	void *dlfo_map_start, *dlfo_map_end, *dlfo_eh_frame;
	struct link_map *dlfo_link_map;
};

static bool find_object(uintptr_t address, struct dl_find_object *object)
{
	(void)address;
	(void)object;
	return false;
}
#endif

bool symbol_module(uintptr_t address, struct module *module)
{
	struct dl_find_object object;

	if (!find_object(address, &object))
		return false;
	*module = (struct module){
		.start = (uintptr_t)object.dlfo_map_start,
		.end = (uintptr_t)object.dlfo_map_end,
		.unwind_table = object.dlfo_eh_frame,
		.program = !object.dlfo_link_map || !object.dlfo_link_map->l_name[0],
	};
	return true;
}

/* ---- the dynamic symbols of a module --------------------------------------------------------------- */

struct symbols {
	const ElfW(Sym) * symbol;
	const char *names;
	unsigned count;
};

/* An entry is an offset where the linker has not relocated its own copy of the table (the vDSO's). */
static const void *entry_address(const struct link_map *map, const ElfW(Dyn) * entry)
{
	uintptr_t address = entry->d_un.d_ptr;

	return (const void *)(address < map->l_addr ? map->l_addr + address : address);
}

/* The GNU hash table ends with the chain of the highest bucket. */
static unsigned count_hashed(const uint32_t *hash)
{
	uint32_t buckets = hash[0], first = hash[1], bloom_words = hash[2], last = 0;
	const uint32_t *bucket = hash + 4 + bloom_words * (sizeof(ElfW(Addr)) / sizeof *hash);
	const uint32_t *chain = bucket + buckets;

	for (uint32_t i = 0; i < buckets; i++)
		if (bucket[i] > last)
			last = bucket[i];
	if (last < first)
		return first;
	while (!(chain[last - first] & 1))
		last++;
	return last + 1;
}

static bool find_symbols(const struct link_map *map, struct symbols *symbols)
{
	*symbols = (struct symbols){0};
	for (const ElfW(Dyn) *entry = map->l_ld; entry && entry->d_tag != DT_NULL; entry++)
		switch (entry->d_tag) {
		case DT_SYMTAB:
			symbols->symbol = entry_address(map, entry);
			break;
		case DT_STRTAB:
			symbols->names = entry_address(map, entry);
			break;
		case DT_GNU_HASH:
			symbols->count = count_hashed(entry_address(map, entry));
			break;
		case DT_HASH: /* buckets and chains: one chain entry for each symbol */
			if (!symbols->count)
				symbols->count = ((const uint32_t *)entry_address(map, entry))[1];
			break;
		default:
			break;
		}
	return symbols->symbol && symbols->names && symbols->count;
}

static void find_function(const struct link_map *map, struct symbol *symbol)
{
	struct symbols symbols;
	uintptr_t best = 0;

	if (!find_symbols(map, &symbols))
		return;
	for (unsigned i = 0; i < symbols.count; i++) {
		const ElfW(Sym) *candidate = &symbols.symbol[i];
		unsigned type = ELF64_ST_TYPE(candidate->st_info);
		uintptr_t start = candidate->st_value;

		if ((type != STT_FUNC && type != STT_GNU_IFUNC) || candidate->st_shndx == SHN_UNDEF ||
		    start < best || symbol->module_offset - start >= candidate->st_size)
			continue;
		best = start;
		symbol->function = symbols.names + candidate->st_name;
		symbol->function_offset = symbol->module_offset - start;
		symbol->function_bytes = candidate->st_size;
	}
}

void symbol_find(uintptr_t address, struct symbol *symbol)
{
	struct dl_find_object object;

	*symbol = (struct symbol){0};
	if (!find_object(address, &object) || !object.dlfo_link_map)
		return;
	const struct link_map *map = object.dlfo_link_map;
	const char *slash = strrchr(map->l_name, '/');

	symbol->module = !map->l_name[0] ? program_invocation_short_name : slash ? slash + 1 : map->l_name;
	symbol->module_offset = address - map->l_addr;
	find_function(map, symbol);
}
