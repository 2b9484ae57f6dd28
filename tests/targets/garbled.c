/* SPDX-License-Identifier: MIT */
/*
 * garbled NAME VALUE SIZE...: something has written over these lines of the library's root record, as a
 * program that breaks its memory might; or one that means harm, which has VALUEs of its own: where it says
 * "many", a number, and where it says "all", a list of so many addresses.
 */
#include "check.h"

#include "../../src/report/root.h"

#include <elf.h>
#include <link.h>

static struct root *root;

/* The note of the library's image leads to its record. */
static int find_root(struct dl_phdr_info *image, size_t bytes, void *unused)
{
	(void)bytes;
	(void)unused;
	for (unsigned i = 0; i < image->dlpi_phnum; i++) {
		if (image->dlpi_phdr[i].p_type != PT_NOTE)
			continue;
		const char *note = (const char *)image->dlpi_addr + image->dlpi_phdr[i].p_vaddr;
		const char *end = note + image->dlpi_phdr[i].p_memsz;

		while (note < end) {
			const ElfW(Nhdr) *head = (const void *)note;
			const char *name = (const char *)(head + 1);
			const char *description = name + ((head->n_namesz + 3) & ~3u);
			int64_t distance;

			if (head->n_namesz == sizeof(ROOT_NOTE_OWNER) && strcmp(name, ROOT_NOTE_OWNER) == 0) {
				memcpy(&distance, description, sizeof(distance));
				root = (struct root *)(description + distance);
				return 1;
			}
			note = description + ((head->n_descsz + 3) & ~3u);
		}
	}
	return 0;
}

enum { MANY = 1 << 17 };

static uint64_t value_of(const char *text)
{
	static uint64_t many = MANY;
	static void *all[MANY];

	for (size_t i = 0; i < MANY; i++)
		all[i] = root;
	return strcmp(text, "many") == 0  ? (uintptr_t)&many
	       : strcmp(text, "all") == 0 ? (uintptr_t)all
					  : strtoul(text, NULL, 0);
}

static void garble(const char *name, const char *value, const char *size)
{
	struct root_field *fields = (struct root_field *)root->fields;
	unsigned found = 0;

	for (uint32_t i = 0; i < root->field_count; i++)
		if (strcmp((const char *)root + fields[i].name, name) == 0) {
			fields[i].value = value_of(value);
			fields[i].size = (uint32_t)strtoul(size, NULL, 0);
			found++;
		}
	CHECK(found == 1, "%s", name);
}

int main(int argc, char **argv)
{
	CHECK(argc > 1 && argc % 3 == 1);
	free(malloc(100));
	CHECK(dl_iterate_phdr(find_root, NULL) == 1 && root->field_count > 0);
	for (; *++argv; argv += 2)
		garble(argv[0], argv[1], argv[2]);
	puts("garbled");
	fflush(stdout);
	for (;;)
		pause();
}
