/* SPDX-License-Identifier: MIT */
/*
 * page_layout: the regions lie in order and apart, aligned as their users rely on, grow, and leave the page
 * map readable below the heap, under every constraint that the system may impose.
 *
 *   page_layout limits    each of these:
 *     free      no limit
 *     data      RLIMIT_DATA: address space may be reserved, but little of it used
 *     space     RLIMIT_AS: not even reserved
 *     crowded   no limit, but something lies wherever the heap would like to be
 *     vast      more reserved than page numbers of 32 bits can tell apart
 *   page_layout dumped    no limit; the process ends in a core dump, which must not contain what is only
 *                         reserved
 *
 * The limits must be there before the first allocation, so each case starts this program anew.
 */
#include "check.h"

#include <dirent.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "heap.h"
#include "options/options.h"

enum { LIMIT = 512 << 20, GRAIN = 8 << 20, DUMP_MOST = 1 << 30 };

static bool reserved; /* all planned regions have their addresses from the start */

/* Before any allocation, even the dynamic linker's: occupies the low addresses. */
static void crowd(int argc, char **argv, char **environment)
{
	(void)environment;
	if (argc < 2 || strcmp(argv[1], "crowded") != 0)
		return;
	for (uintptr_t from = 16ul << 20; from < 1ul << 43; from *= 2)
		(void)mmap((void *)from, from, PROT_NONE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
}
__attribute__((section(".preinit_array"), used)) static void (*const crowd_first)(int, char **,
										  char **) = crowd;

static void check_region(const struct region *region, const struct region *next)
{
	CHECK(region->base && (uintptr_t)region->base % PAGE_BYTES == 0);
	CHECK(region->committed && region->committed <= region->planned && region->planned % PAGE_BYTES == 0);
	if (next)
		CHECK(region->base + region->planned <= next->base);
	/* The last byte is writable. */
	volatile char *last = region->base + region->committed - 1;
	*last = *last;
}

static void check_layout(void)
{
	char *table = (char *)page_front.map - ARCH_TABLE_BYTES;
	CHECK((uintptr_t)layout.heap.base % GRAIN == 0, "the heap starts at %p", (void *)layout.heap.base);
	check_region(&layout.heap, NULL);
	check_region(&layout.map, &layout.slab_of);
	check_region(&layout.slab_of, &layout.runs);
	check_region(&layout.runs, &layout.pages);
	if (layout.pages.committed)
		check_region(&layout.pages, &layout.metadata);
	check_region(&layout.metadata, NULL);
	CHECK(table >= layout.heap.base + layout.heap.planned ||
	      layout.metadata.base + layout.metadata.planned <= layout.heap.base);
	CHECK((char *)page_front.map <= layout.map.base);
	CHECK(layout.map.base == (char *)&page_front.map[page_front.heap_page]);
	CHECK(page_front.heap_page == page_of(layout.heap.base));
	/* Frees read the page map below the limit: the planned heap, or as far as the map is mapped. */
	size_t pages = page_front.limit - page_front.heap_page;
	if (reserved)
		CHECK(pages == layout.heap.planned >> PAGE_SHIFT);
	else
		CHECK(pages <= layout.heap.committed >> PAGE_SHIFT &&
		      pages * sizeof(uint16_t) <= layout.map.committed);
	CHECK((char *)&page_front.slab_of[page_front.heap_page] == layout.slab_of.base);
	CHECK(page_front.metadata == layout.metadata.base);
	/* slab_of can hold a reference to the last block there. */
	char *last = layout.metadata.base + layout.metadata.planned - METADATA_UNIT;
	CHECK(page_front.metadata_bytes == layout.metadata.planned);
	CHECK(metadata_block(metadata_reference(last)) == last, "%zu bytes", page_front.metadata_bytes);
	/* Every page in use has its entries. */
	size_t top = page_heap_pages();
	CHECK(layout.heap.committed >> PAGE_SHIFT >= top);
	CHECK(layout.map.committed >= top * sizeof(uint16_t));
	CHECK(layout.slab_of.committed >= top * sizeof(uint32_t));
	CHECK(layout.runs.committed >= top * sizeof(struct run));
}

/* Foreign addresses: the map is readable and gives them no owner. */
static void check_foreign(void)
{
	for (uintptr_t page = 0; page < page_front.heap_page; page += page_front.heap_page / 1000 + 1)
		CHECK(page_id((void *)(page << PAGE_SHIFT)) == PAGE_FREE);
	CHECK(page_id(layout.heap.base - 1) == PAGE_FREE);
	CHECK(!page_is_heap(NULL) && !page_is_heap((void *)16) && !page_is_heap(layout.heap.base - 1));
	CHECK(page_is_heap(layout.heap.base) &&
	      page_is_heap(layout.heap.base + layout.heap.planned - 1) == reserved);
	CHECK(!page_is_heap(layout.heap.base + layout.heap.planned));
	CHECK(!page_is_heap((void *)UINTPTR_MAX) && !page_is_heap(&layout));
	free(NULL);
}

static void free_foreign(void *pointer)
{
	free(pointer);
}

static void check_abort(void *pointer)
{
	char text[512];
	int status = check_child(free_foreign, pointer, text, sizeof text);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "free(%p): wait status %#x", pointer,
	      (unsigned)status);
	CHECK(strstr(text, "free of a pointer"), "said: %s", text);
	CHECK(strchr(text, '\n') == text + strlen(text) - 1, "said: %s", text);
}

/* Grows each region by more than one step, and uses the memory. */
static void check_growth(void)
{
	enum { RUNS = 40, PAGES = 512 };
	char *runs[RUNS];
	size_t committed = layout.heap.committed;
	bool zeroed;
	for (int i = 0; i < RUNS; i++) {
		runs[i] = page_alloc(PAGES, i % 2 ? PAGES : 1, PAGE_LARGE, &zeroed);
		CHECK(runs[i] && zeroed);
		CHECK(i % 2 == 0 || (uintptr_t)runs[i] % (PAGES * PAGE_BYTES) == 0,
		      "%p is not aligned to 2 MiB", (void *)runs[i]);
		for (int page = 0; page < PAGES; page += 64) {
			CHECK(runs[i][page * PAGE_BYTES] == 0);
			runs[i][page * PAGE_BYTES] = 1;
		}
		check_layout();
	}
	CHECK(layout.heap.committed > committed);
	heap_walk();
	for (int i = 0; i < RUNS; i++)
		page_free(runs[i], PAGES);
	page_purge(true);
	heap_walk();
}

/* Lengths that would wrap, or would when doubled. */
static void check_vast(void)
{
	static const size_t lengths[] = {1ul << 30, 1ul << 31, (1ul << 31) + 1, 1ul << 32, (1ul << 32) + 1};
	bool zeroed;
	CHECK(layout.heap.planned <= 4ul << 40);
	for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
		CHECK(!page_alloc(lengths[i], 1, PAGE_LARGE, &zeroed));
		CHECK(!page_alloc_to_grow(lengths[i], &zeroed));
		CHECK(!page_alloc(1, lengths[i], PAGE_LARGE, &zeroed));
	}
	heap_walk();
}

static bool is_mapped(const char *address)
{
	return msync((void *)(uintptr_t)address, PAGE_BYTES, MS_ASYNC) == 0;
}

/* As after the system has refused a page of one of the regions. */
static void check_given_back(void)
{
	bool zeroed;
	size_t pages = page_heap_pages() + 1;
	char *run = page_alloc(pages, 1, PAGE_LARGE, &zeroed);
	CHECK(run);
	page_free(run, pages);
	char *end = layout.heap.base + layout.heap.committed;
	CHECK(layout.heap.committed > page_heap_pages() << PAGE_SHIFT);
	__atomic_store_n(&layout_refused, true, __ATOMIC_RELAXED);
	page_purge(true);
	CHECK(!layout_refused && layout.heap.committed == page_heap_pages() << PAGE_SHIFT);
	if (!reserved)
		CHECK(!is_mapped(end - PAGE_BYTES) && !page_is_heap(end - PAGE_BYTES));
	check_layout();
	check_foreign();
	heap_walk();
	check_growth();
}

/* After all regions have shrunk and grown again. */
static void dump(void)
{
	reserved = true;
	CHECK(signal(SIGABRT, SIG_DFL) != SIG_ERR);
	check_growth();
	check_given_back();
	CHECK(layout.heap.planned > DUMP_MOST);
	abort();
}

static void run(const char *name)
{
	free(malloc(1));
	if (strcmp(name, "dump") == 0)
		dump();
	/* The constraint that the limit is meant to impose. */
	reserved = strcmp(name, "space") != 0;
	CHECK(is_mapped(layout.heap.base + layout.heap.planned - PAGE_BYTES) == reserved);
	if (strcmp(name, "crowded") == 0) {
		if (layout.heap.base < (char *)(1ul << 43))
			check_skip("the heap found a place at %p all the same", (void *)layout.heap.base);
	} else {
		/* Low, so that the page map is small. */
		CHECK(page_front.limit << PAGE_SHIFT <= 1ul << 46);
	}
	check_layout();
	check_foreign();
	check_abort((void *)16);
	check_abort(layout.heap.base - 4096);
	check_abort(&layout);
	check_abort((void *)(UINTPTR_MAX - 4095));
	/* Pages never used, up to the last planned one. */
	check_abort(layout.heap.base + (page_heap_pages() << PAGE_SHIFT));
	check_abort(layout.heap.base + layout.heap.planned / 2);
	check_abort(layout.heap.base + layout.heap.planned - 16);
	check_growth();
	check_given_back();
	check_foreign();
	if (strcmp(name, "vast") == 0)
		check_vast();
	char *huge = aligned_alloc(8 << 20, 40 << 20); /* more than the alignment of runs */
	CHECK(huge && !page_is_heap(huge));
	check_abort(huge + 4096);
	free(huge);
	check_layout();
}

/* Skips where a process that aborts leaves no file in its folder. */
static void skip_without_dumps(void)
{
	char pattern[256] = "";
	struct rlimit limit;
	int file = open("/proc/sys/kernel/core_pattern", O_RDONLY);

	CHECK(getrlimit(RLIMIT_CORE, &limit) == 0);
	if (file >= 0) {
		ssize_t length = read(file, pattern, sizeof pattern - 1);

		pattern[length > 0 ? length : 0] = 0;
		close(file);
	}
	pattern[strcspn(pattern, "\n")] = 0;
	if (!*pattern || strpbrk(pattern, "|/"))
		check_skip("core dumps leave no file here (kernel.core_pattern is \"%s\")", pattern);
	if (limit.rlim_max != RLIM_INFINITY)
		check_skip("core dumps are limited to %llu bytes here", (unsigned long long)limit.rlim_max);
}

static void check_dump(const char *folder)
{
	char path[512];
	struct stat status;
	unsigned files = 0;
	DIR *entries = opendir(folder);

	CHECK(entries);
	for (struct dirent *entry; (entry = readdir(entries));) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
		CHECK(stat(path, &status) == 0 && unlink(path) == 0);
		/* Sparse, or writing it would take too long. */
		CHECK(status.st_size < DUMP_MOST, "a core dump of %lld bytes", (long long)status.st_size);
		files++;
	}
	closedir(entries);
	CHECK(files == 1 && rmdir(folder) == 0);
}

static void check_dumped(char *program)
{
	char folder[] = "/tmp/page_layout.XXXXXX";

	skip_without_dumps();
	CHECK(mkdtemp(folder));
	pid_t child = fork();

	CHECK(child >= 0);
	if (child == 0) {
		struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};

		CHECK(setrlimit(RLIMIT_CORE, &limit) == 0 && chdir(folder) == 0);
		CHECK(setenv("CPUSLAB_OPTIONS", "reserve:16G", 1) == 0);
		execl("/proc/self/exe", program, "dump", NULL);
		_exit(1);
	}
	int status = check_wait(child);

	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "dumped ended with wait status %#x",
	      (unsigned)status);
	check_dump(folder);
}

static void check_limits(char *program)
{
	static const char *const names[] = {"free", "data", "space", "crowded", "vast"};

	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			struct rlimit limit = {LIMIT, LIMIT};
			CHECK(strcmp(names[i], "data") != 0 || setrlimit(RLIMIT_DATA, &limit) == 0);
			CHECK(strcmp(names[i], "space") != 0 || setrlimit(RLIMIT_AS, &limit) == 0);
			CHECK(strcmp(names[i], "vast") != 0 ||
			      setenv("CPUSLAB_OPTIONS", "reserve:32768G", 1) == 0);
			execl("/proc/self/exe", program, names[i], NULL);
			_exit(1);
		}
		int status = check_wait(child);
		CHECK(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == CHECK_SKIPPED),
		      "%s ended with wait status %#x", names[i], (unsigned)status);
	}
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "limits";

	check_watchdog(60);
	if (strcmp(what, "limits") == 0)
		check_limits(argv[0]);
	else if (strcmp(what, "dumped") == 0)
		check_dumped(argv[0]);
	else
		run(what);
	return 0;
}
