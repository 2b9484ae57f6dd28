/* SPDX-License-Identifier: MIT */
/*
 * garbled NAME VALUE SIZE...: overwrites these fields of the library's root record, as a program that
 * corrupts its memory might; or a malicious one, which has VALUEs of its own:
 *
 *   many, number:N   in place of a number
 *   all, fakes       a list of very many addresses: of the record, or of one that looks like a cache
 *   circle           a page in which each word points to itself
 *
 * With the SIZE "fake" the value goes to a member of that cache.
 */
#include "check.h"

#include "../../src/report/root.h"

#include <cpuslab/cache.h>
#include <elf.h>
#include <link.h>

static struct root *root;

/* The note in the library's image leads to its record. */
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

static struct root_field *field_of(const char *name)
{
	struct root_field *fields = (struct root_field *)root->fields;

	for (uint32_t i = 0; i < root->field_count; i++)
		if (strcmp((const char *)root + fields[i].name, name) == 0)
			return &fields[i];
	CHECK(false, "%s", name);
	return NULL;
}

/* A copy of the first cache. */
static char *fake(void)
{
	static char copy[1 << 16];
	static bool copied;
	void *const *caches = (void *const *)field_of("magazine.caches")->value;

	while (!*caches)
		caches++;
	if (!copied)
		memcpy(copy, *caches, field_of("cache")->size);
	copied = true;
	return copy;
}

static uint64_t value_of(const char *text)
{
	static uint64_t many = MANY, number;
	static void *all[MANY], *fakes[MANY];
	static _Alignas(4096) uint64_t circle[512];

	for (size_t i = 0; i < MANY; i++) {
		all[i] = root;
		fakes[i] = fake();
	}
	for (size_t i = 0; i < 512; i++)
		circle[i] = (uintptr_t)circle;
	if (strncmp(text, "number:", 7) == 0)
		number = strtoul(text + 7, NULL, 0);
	return strcmp(text, "many") == 0          ? (uintptr_t)&many
	       : strncmp(text, "number:", 7) == 0 ? (uintptr_t)&number
	       : strcmp(text, "all") == 0         ? (uintptr_t)all
	       : strcmp(text, "fakes") == 0       ? (uintptr_t)fakes
	       : strcmp(text, "circle") == 0      ? (uintptr_t)circle
						  : strtoul(text, NULL, 0);
}

static void garble(const char *name, const char *value, const char *size)
{
	struct root_field *field = field_of(name);
	uint64_t number = value_of(value);

	if (strcmp(size, "fake") == 0) {
		memcpy(fake() + field->value, &number, field->size);
		return;
	}
	field->value = number;
	field->size = (uint32_t)strtoul(size, NULL, 0);
}

int main(int argc, char **argv)
{
	CHECK(argc > 1 && argc % 3 == 1);
	/* A cache of its own, so that there are names for caches as well. */
	struct cpuslab_cache *cache =
		cpuslab_cache_create(&(struct cpuslab_cache_args){.name = "garbled", .size = 100});

	CHECK(malloc(100) && cache && cpuslab_cache_alloc(cache));
	CHECK(dl_iterate_phdr(find_root, NULL) == 1 && root->field_count > 0);
	for (; *++argv; argv += 2)
		garble(argv[0], argv[1], argv[2]);
	puts("garbled");
	fflush(stdout);
	for (;;)
		pause();
}
