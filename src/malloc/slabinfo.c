/* SPDX-License-Identifier: MIT */
#include "malloc/slabinfo.h"

#include <errno.h>
#include <stdio.h>

#include "malloc/malloc.h"
#include "malloc/process.h"
#include "os/os.h"
#include "report/statistics.h"

static const char head[] =
	"slabinfo - version: 2.1\n"
	"# name            <active_objs> <num_objs> <objsize> <objperslab> <pagesperslab> : tunables <limit> "
	"<batchcount> <sharedfactor> : slabdata <active_slabs> <num_slabs> <sharedavail>\n";

/* Fields are told apart by white space. */
static void join_words(char *name)
{
	for (; *name; name++)
		if (*name == ' ' || (*name >= '\t' && *name <= '\r'))
			*name = '_';
}

static int write_cache(int (*put)(const char *text, size_t length, int file), int file,
		       struct cache_report *cache)
{
	char line[REPORT_NAME + 192];

	join_words(cache->name);
	int length = snprintf(
		line, sizeof line,
		"%-17s %6lu %6lu %6u %4u %4u : tunables %4u %4u %4u : slabdata %6lu %6lu %6lu\n",
		cache->name[0] ? cache->name : "_", cache->live, cache->total, cache->size,
		cache->objects_per_slab, cache->pages_per_slab, cache->capacity, (cache->capacity + 1) / 2,
		0u, cache->slabs - cache->slabs_empty, cache->slabs, cache->in_depot);

	return put(line, (size_t)length, file);
}

static int write_all(int (*put)(const char *text, size_t length, int file), int file)
{
	struct cache_report cache;
	int error = put(head, sizeof head - 1, file);

	for (unsigned next = 0; !error && report_cache(&next, &cache);)
		error = write_cache(put, file, &cache);
	return error;
}

static int put_file(const char *text, size_t length, int file)
{
	return os_write(file, text, length);
}

static int put_error(const char *text, size_t length, int file)
{
	(void)file;
	os_write_error(text, length);
	return 0;
}

void slabinfo_write_error(void)
{
	(void)write_all(put_error, -1);
}

EXPORT int cpuslab_slabinfo(int file)
{
	process_enter();
	int error = write_all(put_file, file);

	if (!error)
		return 0;
	errno = error;
	return -1;
}
