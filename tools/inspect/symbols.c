/* SPDX-License-Identifier: MIT */
#include "inspect/symbols.h"
#include "inspect/bounds.h"
#include "inspect/demangle.h"
#include "inspect/image.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* One mapped file. */
struct mapped {
	const struct profile_mapping *mapping;
	bool tried;
	struct image *image;
};

/* What is shown of an address. */
struct shown {
	uint64_t address;
	size_t count;
	char *texts[LINES_FRAMES];
};

struct symbols {
	pid_t pid;
	void *shown; /* a tree of struct shown */
	size_t count;
	struct mapped mapped[];
};

struct symbols *symbols_open(const struct profile_mapping *mappings, size_t count, pid_t pid)
{
	struct symbols *symbols = calloc(1, sizeof(*symbols) + count * sizeof(struct mapped));

	if (!symbols) {
		perror("cpuslab");
		exit(1);
	}
	symbols->pid = pid;
	symbols->count = count;
	for (size_t i = 0; i < count; i++)
		symbols->mapped[i].mapping = &mappings[i];
	return symbols;
}

static void free_shown(void *node)
{
	struct shown *shown = node;

	for (size_t i = 0; i < shown->count; i++)
		free(shown->texts[i]);
	free(shown);
}

void symbols_close(struct symbols *symbols)
{
	for (size_t i = 0; i < symbols->count; i++)
		image_close(symbols->mapped[i].image);
	tdestroy(symbols->shown, free_shown);
	free(symbols);
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

static void open_image(const struct symbols *symbols, struct mapped *mapped)
{
	int file = open_mapped(symbols->pid, mapped->mapping);

	mapped->tried = true;
	if (file < 0)
		return;
	mapped->image = image_open(file, mapped->mapping->file);
	close(file);
}

/* Finds the mapping that contains an address; opens its file when it is the first time. */
static struct mapped *find_mapped(struct symbols *symbols, uint64_t address)
{
	for (size_t i = 0; i < symbols->count; i++) {
		struct mapped *mapped = &symbols->mapped[i];

		if (address - mapped->mapping->start >= mapped->mapping->limit - mapped->mapping->start)
			continue;
		if (!mapped->tried)
			open_image(symbols, mapped);
		return mapped;
	}
	return NULL;
}

/* Turns an address of the process into one of the file. */
static bool find_in_file(const struct mapped *mapped, uint64_t address, uint64_t *in_file)
{
	const struct profile_mapping *mapping = mapped->mapping;

	return mapped->image && image_address(mapped->image, address - mapping->start + mapping->offset,
					      mapping->offset, mapping->limit - mapping->start, in_file);
}

const char *symbols_name(struct symbols *symbols, uint64_t address, char *name, size_t bytes)
{
	uint64_t in_file, offset;

	/* The process also decides what file system a file is on. */
	bounds_look(symbols->pid);
	const struct mapped *mapped = find_mapped(symbols, address);
	const char *found = mapped && find_in_file(mapped, address, &in_file)
				    ? image_function(mapped->image, in_file, &offset)
				    : NULL;

	bounds_done();
	const char *base = mapped ? strrchr(mapped->mapping->file, '/') : NULL;

	if (found)
		snprintf(name, bytes, "%s", found);
	else if (mapped)
		snprintf(name, bytes, "%s+0x%lx", base ? base + 1 : mapped->mapping->file,
			 address - mapped->mapping->start + mapped->mapping->offset);
	else
		snprintf(name, bytes, "0x%lx", address);
	return name;
}

/* ---- for people ---------------------------------------------------------------------------------------- */

static int by_address(const void *one, const void *other)
{
	const struct shown *a = one, *b = other;

	return (a->address > b->address) - (a->address < b->address);
}

/* Returns "function at file:line", of which some may be unknown, without the file's folder. */
static char *describe(const struct lines_frame *frame)
{
	char *function = demangle(frame->function ? frame->function : "??"), *text = NULL;
	const char *base = frame->file ? strrchr(frame->file, '/') : NULL;

	if (!frame->file)
		return function;
	if (asprintf(&text, "%s at %s:%d", function, base ? base + 1 : frame->file, frame->line) < 0) {
		perror("cpuslab");
		exit(1);
	}
	free(function);
	return text;
}

static void find_shown(struct symbols *symbols, struct shown *shown)
{
	struct lines_frame frames[LINES_FRAMES];
	uint64_t in_file;

	bounds_look(symbols->pid);
	const struct mapped *mapped = find_mapped(symbols, shown->address);

	if (mapped && find_in_file(mapped, shown->address, &in_file))
		shown->count = image_frames(mapped->image, in_file, frames);
	bounds_done();
	for (size_t i = 0; i < shown->count; i++)
		shown->texts[i] = describe(&frames[i]);
	if (!shown->count) {
		char name[PROFILE_PATH + 32];

		shown->texts[shown->count++] =
			demangle(symbols_name(symbols, shown->address, name, sizeof(name)));
	}
}

size_t symbols_texts(struct symbols *symbols, uint64_t address, char *const **texts)
{
	struct shown wanted = {.address = address}, **found = tfind(&wanted, &symbols->shown, by_address);
	struct shown *shown = found ? *found : calloc(1, sizeof(*shown));

	if (!found && shown) {
		shown->address = address;
		find_shown(symbols, shown);
	}
	if (!shown || (!found && !tsearch(shown, &symbols->shown, by_address))) {
		perror("cpuslab");
		exit(1);
	}
	*texts = shown->texts;
	return shown->count;
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
