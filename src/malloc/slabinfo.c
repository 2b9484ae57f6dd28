/* SPDX-License-Identifier: MIT */
#include "malloc/slabinfo.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "malloc/malloc.h"
#include "process/process.h"
#include "malloc/size_class.h"
#include "os/os.h"
#include "report/statistics.h"

static const char head[] =
	"slabinfo - version: 2.1\n"
	"# name            <active_objs> <num_objs> <objsize> <objperslab> <pagesperslab> : tunables <limit> "
	"<batchcount> <sharedfactor> : slabdata <active_slabs> <num_slabs> <sharedavail>\n";

/* Fields are separated by white space, so names must have none. */
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
	int length =
		snprintf(line, sizeof line,
			 "%-17s %6lu %6lu %6u %4u %4u : tunables %4u %4u %4u : slabdata %6lu %6lu %6lu\n",
			 cache->name[0] ? cache->name : "_", cache->live, cache->total, cache->size,
			 cache->objects_per_slab, cache->pages_per_slab, cache->tunables.limit,
			 cache->tunables.batchcount, cache->tunables.sharedfactor,
			 cache->slabs - cache->slabs_empty, cache->slabs, cache->in_depot);

	return put(line, (size_t)length, file);
}

static int write_all(int (*put)(const char *text, size_t length, int file), int file)
{
	struct cache_report cache;

	size_class_make_all();
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

/* ---- what is written to /proc/slabinfo ---------------------------------------------------------------- */

static bool is_named(const struct cache *cache, const char *name, size_t length)
{
	char own[REPORT_NAME];

	strncpy(own, cache->depot.slabs.traits.name, sizeof own - 1);
	own[sizeof own - 1] = 0;
	join_words(own);
	return strlen(own) == length && memcmp(own, name, length) == 0;
}

/*
 * Returns the first cache of a name, in slabinfo's order; NULL for none.  The caller must keep caches from
 * being destroyed.
 */
static struct cache *find_named(const char *name, size_t length)
{
	for (unsigned number = 0; number < magazine_caches(); number++) {
		struct cache *cache = magazine_cache_number(number);

		if (cache && is_named(cache, name, length))
			return cache;
	}
	return NULL;
}

/* Reads a number of at most `most`, preceded by white space and followed by white space or the end. */
static bool read_number(const char **text, unsigned long most, uint32_t *number)
{
	const char *digits = *text + strspn(*text, " \t");
	char *end;

	if (digits == *text || *digits < '0' || *digits > '9')
		return false;
	int saved = errno;
	unsigned long value = strtoul(digits, &end, 10); /* too many digits: ULONG_MAX */

	errno = saved;
	*text = end;
	*number = (uint32_t)value;
	return value <= most && (!*end || strchr(" \t\n", *end));
}

EXPORT int cpuslab_slabinfo_tune(const char *text)
{
	size_t length = strcspn(text, " \t\n");
	const char *at = text + length;
	struct depot_tunables tunables;
	bool tuned = false;

	if (read_number(&at, DEPOT_CAPACITY_MAX, &tunables.limit) &&
	    read_number(&at, tunables.limit, &tunables.batchcount) &&
	    read_number(&at, DEPOT_SHAREDFACTOR_MAX, &tunables.sharedfactor) && !at[strspn(at, " \t\n")] &&
	    tunables.batchcount > 0) {
		process_enter();
		size_class_make_all();
		magazine_keep_caches();
		struct cache *cache = find_named(text, length);

		if (cache) {
			magazine_tune(cache, &tunables);
			tuned = true;
		}
		magazine_let_caches_go();
	}
	if (tuned)
		return 0;
	errno = EINVAL;
	return -1;
}
