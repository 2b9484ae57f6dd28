/* SPDX-License-Identifier: MIT */
#include "inspect/image.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A function in the file. */
struct symbol {
	uint64_t value, size;
	uint32_t name, number; /* in the file's table */
	bool global;
};

struct image {
	int file;
	char *path;
	uint64_t length;
	struct symbol *symbols; /* sorted by address */
	size_t symbol_count;
	char *strings; /* followed by a zero byte */
	uint64_t strings_length;
	Elf64_Phdr *segments;
	unsigned segment_count;
	bool tried; /* to open the debug information */
	struct lines *lines;
};

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

struct image *image_open(int file, const char *path)
{
	struct image *image = calloc(1, sizeof(*image));
	struct stat status;
	Elf64_Ehdr *header = NULL;

	if (!image)
		return NULL;
	image->file = dup(file);
	image->path = strdup(path);
	if (image->file >= 0 && image->path && fstat(file, &status) == 0 && S_ISREG(status.st_mode)) {
		image->length = (uint64_t)status.st_size;
		header = read_part(image, 0, sizeof(*header));
	}
	if (!header || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
	    header->e_ident[EI_CLASS] != ELFCLASS64) {
		free(header);
		image_close(image);
		return NULL;
	}
	image->segments = read_part(image, header->e_phoff, header->e_phnum * sizeof(*image->segments));
	image->segment_count = image->segments ? header->e_phnum : 0;
	find_table(image, header);
	free(header);
	return image;
}

void image_close(struct image *image)
{
	if (!image)
		return;
	lines_close(image->lines);
	if (image->file >= 0)
		close(image->file);
	free(image->path);
	free(image->segments);
	free(image->symbols);
	free(image->strings);
	free(image);
}

bool image_address(const struct image *image, uint64_t place, uint64_t mapped, uint64_t bytes,
		   uint64_t *address)
{
	for (unsigned i = 0; i < image->segment_count; i++) {
		const Elf64_Phdr *segment = &image->segments[i];

		if (segment->p_type == PT_LOAD && segment->p_flags & PF_X &&
		    mapped <= segment->p_offset + segment->p_filesz && segment->p_offset < mapped + bytes) {
			*address = place - segment->p_offset + segment->p_vaddr;
			return true;
		}
	}
	return false;
}

/*
 * Returns the last function that begins at or before an address, among those that reach it: few lie between.
 */
const char *image_function(const struct image *image, uint64_t address, uint64_t *offset)
{
	enum { BACK = 64 };
	size_t low = 0, high = image->symbol_count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (image->symbols[middle].value <= address)
			low = middle + 1;
		else
			high = middle;
	}
	for (size_t i = 0; i < BACK && i < low; i++) {
		const struct symbol *symbol = &image->symbols[low - 1 - i];

		if (address - symbol->value < symbol->size) {
			*offset = address - symbol->value;
			return image->strings + symbol->name;
		}
	}
	return NULL;
}

size_t image_frames(struct image *image, uint64_t address, struct lines_frame frames[static LINES_FRAMES])
{
	uint64_t offset;

	if (!image->tried)
		image->lines = lines_open(image->file, image->path);
	image->tried = true;
	size_t count = lines_find(image->lines, address, frames);
	const char *name = image_function(image, address, &offset);

	if (name && !count)
		frames[count++] = (struct lines_frame){.line = 0};
	/* The name that callers and the other formats know it by: one of several at the same address. */
	if (name)
		frames[count - 1].function = name;
	return count;
}
