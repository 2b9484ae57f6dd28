/* SPDX-License-Identifier: MIT */
#include "inspect/symbols.h"

#include <elf.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* One mapped file. */
struct image {
	const struct profile_mapping *mapping;
	const char *bytes; /* NULL: not opened yet, or not to be opened */
	size_t length;
	bool tried;
	const Elf64_Sym *symbols;
	size_t symbol_count;
	const char *strings;
	size_t strings_length;
	uint64_t bias; /* from a symbol's value to its address */
};

struct symbols {
	pid_t pid;
	size_t count;
	struct image images[];
};

struct symbols *symbols_open(const struct profile_mapping *mappings, size_t count, pid_t pid)
{
	struct symbols *symbols = calloc(1, sizeof(*symbols) + count * sizeof(struct image));

	if (!symbols) {
		perror("cpuslab");
		exit(1);
	}
	symbols->pid = pid;
	symbols->count = count;
	for (size_t i = 0; i < count; i++)
		symbols->images[i].mapping = &mappings[i];
	return symbols;
}

void symbols_close(struct symbols *symbols)
{
	for (size_t i = 0; i < symbols->count; i++)
		if (symbols->images[i].bytes)
			munmap((void *)symbols->images[i].bytes, symbols->images[i].length);
	free(symbols);
}

static bool lies_in(const struct image *image, uint64_t offset, uint64_t bytes)
{
	return offset <= image->length && bytes <= image->length - offset;
}

/* The full table where the file has one, else what it exports. */
static void find_table(struct image *image)
{
	const Elf64_Ehdr *header = (const void *)image->bytes;
	const Elf64_Shdr *sections = (const void *)(image->bytes + header->e_shoff);
	const Elf64_Shdr *table = NULL;

	if (!lies_in(image, header->e_shoff, header->e_shnum * sizeof(*sections)))
		return;
	for (unsigned i = 0; i < header->e_shnum; i++)
		if (sections[i].sh_type == SHT_SYMTAB || (sections[i].sh_type == SHT_DYNSYM && !table))
			table = &sections[i];
	if (!table || table->sh_link >= header->e_shnum)
		return;
	const Elf64_Shdr *strings = &sections[table->sh_link];

	if (!lies_in(image, table->sh_offset, table->sh_size) ||
	    !lies_in(image, strings->sh_offset, strings->sh_size))
		return;
	image->symbols = (const void *)(image->bytes + table->sh_offset);
	image->symbol_count = table->sh_size / sizeof(*image->symbols);
	image->strings = image->bytes + strings->sh_offset;
	image->strings_length = strings->sh_size;
}

static void find_bias(struct image *image)
{
	const Elf64_Ehdr *header = (const void *)image->bytes;
	const Elf64_Phdr *segments = (const void *)(image->bytes + header->e_phoff);
	const struct profile_mapping *mapping = image->mapping;

	if (!lies_in(image, header->e_phoff, header->e_phnum * sizeof(*segments)))
		return;
	for (unsigned i = 0; i < header->e_phnum; i++)
		if (segments[i].p_type == PT_LOAD && segments[i].p_flags & PF_X &&
		    mapping->offset <= segments[i].p_offset + segments[i].p_filesz &&
		    segments[i].p_offset < mapping->offset + (mapping->limit - mapping->start))
			image->bias =
				mapping->start - mapping->offset + segments[i].p_offset - segments[i].p_vaddr;
}

/* The file as the process sees it, which may live in another mount namespace, or be deleted. */
static void open_image(const struct symbols *symbols, struct image *image)
{
	char path[PROFILE_PATH + 64];
	struct stat status;

	image->tried = true;
	snprintf(path, sizeof(path), "/proc/%d/root%s", (int)symbols->pid, image->mapping->file);
	int file = open(path, O_RDONLY | O_CLOEXEC);

	if (file < 0)
		return;
	if (fstat(file, &status) == 0 && status.st_size > (off_t)sizeof(Elf64_Ehdr)) {
		void *bytes = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, file, 0);

		if (bytes != MAP_FAILED) {
			image->bytes = bytes;
			image->length = (size_t)status.st_size;
		}
	}
	close(file);
	const Elf64_Ehdr *header = (const void *)image->bytes;

	if (!header || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
	    header->e_ident[EI_CLASS] != ELFCLASS64)
		return;
	find_bias(image);
	find_table(image);
}

static const char *find_symbol(const struct image *image, uint64_t address)
{
	const Elf64_Sym *best = NULL;
	uint64_t value = address - image->bias;

	for (size_t i = 0; i < image->symbol_count; i++) {
		const Elf64_Sym *symbol = &image->symbols[i];

		if (ELF64_ST_TYPE(symbol->st_info) != STT_FUNC || !symbol->st_shndx ||
		    value - symbol->st_value >= (symbol->st_size ? symbol->st_size : 1) ||
		    symbol->st_name >= image->strings_length)
			continue;
		/* Of aliases the global one: that is the name by which it was called. */
		if (!best || (ELF64_ST_BIND(symbol->st_info) == STB_GLOBAL &&
			      ELF64_ST_BIND(best->st_info) != STB_GLOBAL))
			best = symbol;
	}
	return best ? image->strings + best->st_name : NULL;
}

const char *symbols_name(struct symbols *symbols, uint64_t address, char *name, size_t bytes)
{
	for (size_t i = 0; i < symbols->count; i++) {
		struct image *image = &symbols->images[i];

		if (address - image->mapping->start >= image->mapping->limit - image->mapping->start)
			continue;
		if (!image->tried)
			open_image(symbols, image);
		const char *found = find_symbol(image, address), *base = strrchr(image->mapping->file, '/');

		if (found)
			snprintf(name, bytes, "%s", found);
		else
			snprintf(name, bytes, "%s+0x%lx", base ? base + 1 : image->mapping->file,
				 address - image->mapping->start + image->mapping->offset);
		return name;
	}
	snprintf(name, bytes, "0x%lx", address);
	return name;
}

/* The functions by which an allocation comes to profile_allocated and its caller. */
static bool is_allocator(const char *name)
{
	static const char *const patterns[] = {
		"malloc",     "malloc_usual",       "malloc_slow",  "malloc_aligned*", "calloc",
		"realloc",    "realloc_*",          "reallocarray", "memalign",        "aligned_alloc",
		"valloc",     "posix_memalign",     "pvalloc",      "_Zn[wa]*",        "new_missed",
		"alloc_slow", "new_nothrow_missed", "alloc_small",  "alloc_large",     "large_alloc*",
		"large_grow", "large_resize",       "magazine_*",   "linked_alloc*",   "cpuslab_*",
		"__libc_*",
	};
	char whole[128];

	/* Parts of a function that the compiler has made, "malloc_slow.cold", are called by its name. */
	snprintf(whole, sizeof(whole), "%.*s", (int)strcspn(name, ".@"), name);
	for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++)
		if (fnmatch(patterns[i], whole, 0) == 0)
			return true;
	return false;
}

unsigned symbols_own_frames(struct symbols *symbols, const uint64_t *frames, unsigned count)
{
	char name[128];
	unsigned own = 2; /* who notes samples is the allocator's, and whoever calls that */

	if (count <= own || strncmp(symbols_name(symbols, frames[0] - 1, name, sizeof(name)),
				    "profile_allocated", strlen("profile_allocated")) != 0)
		return 0;
	/* The outermost is the program's, whatever it is called. */
	while (own + 1 < count && is_allocator(symbols_name(symbols, frames[own] - 1, name, sizeof(name))))
		own++;
	return own;
}
