/* SPDX-License-Identifier: MIT */
#include "inspect/symbols.h"
#include "inspect/bounds.h"

#include <elf.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A function in a file. */
struct symbol {
	uint64_t value, size;
	uint32_t name, number; /* in the file's table */
	bool global;
};

/* One mapped file. */
struct image {
	const struct profile_mapping *mapping;
	bool tried;
	int file; /* open while it is read */
	uint64_t length;
	struct symbol *symbols; /* sorted by address */
	size_t symbol_count;
	char *strings; /* followed by a zero byte */
	uint64_t strings_length;
	uint64_t bias; /* add to a symbol's value for its address */
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
	for (size_t i = 0; i < symbols->count; i++) {
		free(symbols->images[i].symbols);
		free(symbols->images[i].strings);
	}
	free(symbols);
}

/*
 * Returns a part of the file followed by a zero byte, or NULL.  Reads rather than maps: the target may
 * truncate its file at any time.
 */
static void *read_part(const struct image *image, uint64_t offset, uint64_t bytes)
{
	if (offset > image->length || bytes > image->length - offset)
		return NULL;
	char *part = malloc(bytes + 1);
	size_t done = 0;

	while (part && done < bytes) {
		ssize_t got = pread(image->file, part + done, bytes - done, (off_t)(offset + done));

		if (got <= 0) {
			free(part);
			return NULL;
		}
		done += (size_t)got;
	}
	if (part)
		part[bytes] = '\0';
	return part;
}

/*
 * Orders aliases so that the global one, and of these the first in the file, comes last: that one is found.
 */
static int by_value(const void *one, const void *other)
{
	const struct symbol *a = one, *b = other;

	if (a->value != b->value)
		return a->value < b->value ? -1 : 1;
	if (a->global != b->global)
		return a->global ? 1 : -1;
	return (a->number < b->number) - (a->number > b->number);
}

static void keep_functions(struct image *image, const Elf64_Sym *table, size_t count)
{
	image->symbols = calloc(count + 1, sizeof(*image->symbols));
	for (size_t i = 0; image->symbols && i < count; i++) {
		const Elf64_Sym *symbol = &table[i];

		if (ELF64_ST_TYPE(symbol->st_info) == STT_FUNC && symbol->st_shndx &&
		    symbol->st_name < image->strings_length)
			image->symbols[image->symbol_count++] = (struct symbol){
				symbol->st_value, symbol->st_size ? symbol->st_size : 1, symbol->st_name,
				(uint32_t)i, ELF64_ST_BIND(symbol->st_info) == STB_GLOBAL};
	}
	if (image->symbol_count)
		qsort(image->symbols, image->symbol_count, sizeof(*image->symbols), by_value);
}

/* Finds the full table if the file has one, else the dynamic one. */
static void find_table(struct image *image, const Elf64_Ehdr *header)
{
	Elf64_Shdr *sections = read_part(image, header->e_shoff, header->e_shnum * sizeof(*sections));
	const Elf64_Shdr *table = NULL;

	for (unsigned i = 0; sections && i < header->e_shnum; i++)
		if (sections[i].sh_type == SHT_SYMTAB || (sections[i].sh_type == SHT_DYNSYM && !table))
			table = &sections[i];
	if (table && table->sh_link < header->e_shnum) {
		const Elf64_Shdr *strings = &sections[table->sh_link];
		Elf64_Sym *all = read_part(image, table->sh_offset, table->sh_size);

		image->strings = read_part(image, strings->sh_offset, strings->sh_size);
		image->strings_length = strings->sh_size;
		if (all && image->strings)
			keep_functions(image, all, table->sh_size / sizeof(*all));
		free(all);
	}
	free(sections);
}

static void find_bias(struct image *image, const Elf64_Ehdr *header)
{
	Elf64_Phdr *segments = read_part(image, header->e_phoff, header->e_phnum * sizeof(*segments));
	const struct profile_mapping *mapping = image->mapping;

	for (unsigned i = 0; segments && i < header->e_phnum; i++)
		if (segments[i].p_type == PT_LOAD && segments[i].p_flags & PF_X &&
		    mapping->offset <= segments[i].p_offset + segments[i].p_filesz &&
		    segments[i].p_offset < mapping->offset + (mapping->limit - mapping->start))
			image->bias =
				mapping->start - mapping->offset + segments[i].p_offset - segments[i].p_vaddr;
	free(segments);
}

/*
 * Opens the very file that is mapped, even a deleted one, which the kernel allows only root; else the file
 * that has its name now: first as the process sees it, which may live in another mount namespace, then here,
 * since the kernel reports the files of a process with another root directory by their names here.
 */
static int open_mapped(pid_t pid, const struct profile_mapping *mapping)
{
	/* It may be a pipe without a writer. */
	enum { FLAGS = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY };
	char path[PROFILE_PATH + 64];

	snprintf(path, sizeof(path), "/proc/%d/map_files/%lx-%lx", (int)pid, mapping->start, mapping->limit);
	int file = open(path, FLAGS);

	if (file < 0) {
		snprintf(path, sizeof(path), "/proc/%d/root%s", (int)pid, mapping->file);
		file = open(path, FLAGS);
	}
	return file >= 0 ? file : open(mapping->file, FLAGS);
}

static void open_image(const struct symbols *symbols, struct image *image)
{
	struct stat status;

	image->tried = true;
	image->file = open_mapped(symbols->pid, image->mapping);
	if (image->file < 0)
		return;
	if (fstat(image->file, &status) == 0 && S_ISREG(status.st_mode)) {
		image->length = (uint64_t)status.st_size;
		Elf64_Ehdr *header = read_part(image, 0, sizeof(*header));

		if (header && memcmp(header->e_ident, ELFMAG, SELFMAG) == 0 &&
		    header->e_ident[EI_CLASS] == ELFCLASS64) {
			find_bias(image, header);
			find_table(image, header);
		}
		free(header);
	}
	close(image->file);
}

/*
 * Returns the last function that begins at or before an address, among those that reach it: few lie between.
 */
static const char *find_symbol(const struct image *image, uint64_t address)
{
	enum { BACK = 64 };
	uint64_t value = address - image->bias;
	size_t low = 0, high = image->symbol_count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (image->symbols[middle].value <= value)
			low = middle + 1;
		else
			high = middle;
	}
	for (size_t i = 0; i < BACK && i < low; i++) {
		const struct symbol *symbol = &image->symbols[low - 1 - i];

		if (value - symbol->value < symbol->size)
			return image->strings + symbol->name;
	}
	return NULL;
}

const char *symbols_name(struct symbols *symbols, uint64_t address, char *name, size_t bytes)
{
	for (size_t i = 0; i < symbols->count; i++) {
		struct image *image = &symbols->images[i];

		if (address - image->mapping->start >= image->mapping->limit - image->mapping->start)
			continue;
		if (!image->tried) {
			/* The process also decides what file system the file is on. */
			bounds_look(symbols->pid);
			open_image(symbols, image);
			bounds_done();
		}
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

/* Whether it is one of the functions between an allocation and profile_allocated, or its caller. */
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

	/* Parts that the compiler splits off ("malloc_slow.cold") count under the function's name. */
	snprintf(whole, sizeof(whole), "%.*s", (int)strcspn(name, ".@"), name);
	for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++)
		if (fnmatch(patterns[i], whole, 0) == 0)
			return true;
	return false;
}

unsigned symbols_own_frames(struct symbols *symbols, const uint64_t *frames, unsigned count)
{
	char name[128];
	unsigned own = 2; /* the function that records samples is the allocator's, and so is its caller */

	if (count <= own || strncmp(symbols_name(symbols, frames[0] - 1, name, sizeof(name)),
				    "profile_allocated", strlen("profile_allocated")) != 0)
		return 0;
	/* The outermost frame is the program's, whatever its name. */
	while (own + 1 < count && is_allocator(symbols_name(symbols, frames[own] - 1, name, sizeof(name))))
		own++;
	return own;
}
