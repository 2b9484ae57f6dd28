/* SPDX-License-Identifier: MIT */
/*
 * cpuslab_slabinfo() writes what slabinfo(5) describes, with correct figures for malloc's classes and for
 * caches whose objects the test has counted.
 */
#include "check.h"

#include <cpuslab/cache.h>
#include <malloc.h>

enum { OBJECTS = 1000 };

struct row {
	char name[300];
	unsigned long active, total, size, per_slab, pages, limit, batch, shared, active_slabs, slabs,
		available;
};

static char text[1 << 18];

static void read_back(void)
{
	FILE *file = tmpfile();

	CHECK(file && cpuslab_slabinfo(fileno(file)) == 0);
	rewind(file);
	size_t length = fread(text, 1, sizeof text - 1, file);

	CHECK(length > 0 && length < sizeof text - 1 && text[length - 1] == '\n');
	text[length] = 0;
	fclose(file);
}

/* Every line parses; returns the named one. */
static bool find(const char *name, struct row *found)
{
	bool any = false;
	char *line = text;
	static const char first[] =
		"slabinfo - version: 2.1\n# name            <active_objs> <num_objs> <objsize> "
		"<objperslab> <pagesperslab> : tunables <limit> <batchcount> <sharedfactor> : "
		"slabdata <active_slabs> <num_slabs> <sharedavail>\n";

	CHECK(strncmp(text, first, sizeof first - 1) == 0);
	for (line += sizeof first - 1; *line; line = strchr(line, '\n') + 1) {
		struct row row;
		int end = 0;

		CHECK(sscanf(line,
			     "%299s %lu %lu %lu %lu %lu : tunables %lu %lu %lu : slabdata %lu %lu %lu%n",
			     row.name, &row.active, &row.total, &row.size, &row.per_slab, &row.pages,
			     &row.limit, &row.batch, &row.shared, &row.active_slabs, &row.slabs,
			     &row.available, &end) == 12 &&
			      line[end] == '\n',
		      "%.80s", line);
		CHECK(row.active <= row.total && row.total == row.slabs * row.per_slab, "%s", row.name);
		CHECK(row.active_slabs <= row.slabs && row.per_slab * row.size <= row.pages * 4096, "%s",
		      row.name);
		CHECK(row.batch > 0 && row.batch <= (row.limit + 1) / 2, "%s", row.name);
		if (strcmp(row.name, name) == 0) {
			*found = row;
			any = true;
		}
	}
	return any;
}

static void print_stats(void *unused)
{
	(void)unused;
	malloc_stats();
}

/* malloc_stats prints its own lines and nothing else, however long a cache's name is. */
static void check_long_name(void)
{
	static char printed[1 << 16];
	char name[CPUSLAB_CACHE_NAME_MAX + 1];

	memset(name, 'n', sizeof name - 1);
	name[sizeof name - 1] = '\0';
	struct cpuslab_cache *cache =
		cpuslab_cache_create(&(struct cpuslab_cache_args){.name = name, .size = 40});

	CHECK(cache);
	cpuslab_cache_free(cache, cpuslab_cache_alloc(cache));
	/* A NUL byte among them would end the text, and the last line would be missing. */
	CHECK_EXITED(check_child(print_stats, NULL, printed, sizeof printed), 0);
	CHECK(strstr(printed, name) && strstr(printed, "\nheap "), "%s", printed);
	for (const char *at = printed; *at; at++)
		CHECK(*at == '\n' || (*at >= ' ' && *at <= '~'), "byte %#x among them", (unsigned char)*at);
	CHECK(cpuslab_cache_destroy(cache) == 0);
}

static void print_json(void *unused)
{
	(void)unused;
	CHECK(cpuslab_stats_json(STDERR_FILENO) == 0);
}

/*
 * Names may be any bytes, and JSON is UTF-8: sequences of one to four bytes, and ones that only look valid.
 */
static void check_json_names(void)
{
	static const struct {
		const char *name, *said;
	} rows[] = {
		{"a \xc3\xbc \xe2\x82\xac \xf0\x9d\x84\x9e", "a \xc3\xbc \xe2\x82\xac \xf0\x9d\x84\x9e"},
		{"b \xff\x80", "b ??"},
		{"c \xc3", "c ?"},
		{"d \xc1\xbf \xe0\x9f\xbf \xf0\x8f\xbf\xbf", "d ?? ??? ????"},
		{"e \xed\xa0\x80 \xf4\x90\x80\x80 \xf5", "e ??? ???? ?"},
		{"f\n\"\\", "f\\u000a\\u0022\\u005c"},
		{"g \x7f \xc2\x9b \xc2\xa0", "g ? ?? \xc2\xa0"},
	};
	enum { ROWS = sizeof rows / sizeof *rows };
	static char printed[1 << 17];
	struct cpuslab_cache *caches[ROWS];
	char said[128];

	for (unsigned i = 0; i < ROWS; i++) {
		struct cpuslab_cache_args args = {
			.name = rows[i].name, .size = 40, .flags = CPUSLAB_CACHE_NO_MERGE};

		CHECK((caches[i] = cpuslab_cache_create(&args)));
		cpuslab_cache_free(caches[i], cpuslab_cache_alloc(caches[i]));
	}
	CHECK_EXITED(check_child(print_json, NULL, printed, sizeof printed), 0);
	for (unsigned i = 0; i < ROWS; i++) {
		snprintf(said, sizeof said, "{\"name\": \"%s\",", rows[i].said);
		CHECK(strstr(printed, said), "no %s", said);
		CHECK(cpuslab_cache_destroy(caches[i]) == 0);
	}
}

int main(void)
{
	struct cpuslab_cache_args args = {.name = "two words", .size = 100, .magazine_capacity = 54};
	struct cpuslab_cache *cache = cpuslab_cache_create(&args);
	static void *objects[OBJECTS];
	struct row row;

	check_watchdog(60);
	check_long_name();
	check_json_names();
	CHECK(cache && cpuslab_cache_alloc_bulk(cache, OBJECTS, objects) == OBJECTS);
	read_back();
	CHECK(find("two_words", &row));
	CHECK(row.active == OBJECTS && row.size == 104 && row.limit == 54 && row.batch == 27);
	CHECK(row.slabs == (row.total + row.per_slab - 1) / row.per_slab && row.total >= OBJECTS);
	CHECK(row.active_slabs * row.per_slab >= OBJECTS, "%lu of %lu slabs in use", row.active_slabs,
	      row.slabs);
	CHECK(find("malloc-112", &row));

	unsigned long before = row.active;

	for (int i = 0; i < OBJECTS; i++)
		CHECK(malloc(100));
	read_back();
	CHECK(find("malloc-112", &row) && row.active == before + OBJECTS, "%lu, then %lu", before,
	      row.active);

	cpuslab_cache_free_bulk(cache, OBJECTS, objects);
	read_back();
	CHECK(find("two_words", &row) && row.active == 0);
	/* All are free: in the magazines of vCPUs, in the depot, and in slabs. */
	CHECK(row.available > 0 && row.available <= OBJECTS, "%lu wait in magazines that no vCPU has",
	      row.available);
	cpuslab_cache_shrink(cache);
	read_back();
	CHECK(find("two_words", &row) && row.available == 0 && row.active_slabs == 0,
	      "%lu wait, %lu slabs in use", row.available, row.active_slabs);
	CHECK(cpuslab_cache_destroy(cache) == 0);
	read_back();
	CHECK(!find("two_words", &row));

	/* With no waiting magazines all objects go to the slabs, and one empty slab is kept. */
	cache = cpuslab_cache_create(&args);
	CHECK(cache && cpuslab_slabinfo_tune("two_words 2 1 0") == 0);
	CHECK(cpuslab_cache_alloc_bulk(cache, OBJECTS, objects) == OBJECTS);
	cpuslab_cache_free_bulk(cache, OBJECTS, objects);
	read_back();
	CHECK(find("two_words", &row) && row.active == 0);
	CHECK(row.slabs > 1 && row.active_slabs == row.slabs - 1, "%lu of %lu slabs in use", row.active_slabs,
	      row.slabs);
	CHECK(cpuslab_cache_destroy(cache) == 0);

	errno = 0;
	CHECK(cpuslab_slabinfo(-1) == -1 && errno == EBADF);
	return 0;
}
