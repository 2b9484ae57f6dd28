/* SPDX-License-Identifier: MIT */
/*
 * Each kind of corruption that a debugged cache or class finds, and its report to the byte: what was found,
 * where, the bytes, and the action taken.  Most cases are those of the kernel's slub_kunit.
 *
 * Addresses and process ids are removed from a report before it is compared.
 */
#include "check.h"

#include <ctype.h>

#include <cpuslab/cache.h>

enum { SIZE = 64 };

/* ---- what a child said ----------------------------------------------------------------------------- */

static char text[64 << 10];

/* In a report, replaces 0x… of five digits and more by ADDRESS, and drops the number of (pid N). */
static void normalise(char *line)
{
	char *to = line;

	while (*line) {
		size_t digits = 0;

		if (line[0] == '0' && line[1] == 'x')
			while (isxdigit((unsigned char)line[2 + digits]))
				digits++;
		if (digits > 4) {
			line += 2 + digits;
			to = mempcpy(to, "ADDRESS", 7);
		} else if (strncmp(line, "(pid ", 5) == 0) {
			line = strchr(line, ')') + 1;
			to = mempcpy(to, "(pid N)", 7);
		} else {
			*to++ = *line++;
		}
	}
	*to = 0;
}

/* Runs it in a child that a report may stop; the output is in `text`. */
static bool stopped(void (*function)(void *), void *argument)
{
	int status = check_child(function, argument, text, sizeof text);

	normalise(text);
	CHECK(WIFEXITED(status) ? WEXITSTATUS(status) == 0 : WTERMSIG(status) == SIGABRT, "%#x, said: %s",
	      (unsigned)status, text);
	return WIFSIGNALED(status);
}

static void said(const char *expected)
{
	CHECK(strstr(text, expected), "not said: %s\nbut: %s", expected, text);
}

static void said_nothing(void)
{
	CHECK(!text[0], "said: %s", text);
}

/* ---- caches of the kernel's tests ------------------------------------------------------------------ */

static struct cpuslab_cache *create(const char *name, unsigned flags)
{
	struct cpuslab_cache_args args = {.name = name, .size = SIZE, .flags = flags};
	struct cpuslab_cache *cache = cpuslab_cache_create(&args);

	CHECK(cache);
	return cache;
}

static unsigned char *alloc(struct cpuslab_cache *cache)
{
	unsigned char *object = cpuslab_cache_alloc(cache);

	CHECK(object);
	memset(object, 0x11, SIZE);
	return object;
}

static void clobber_zone(void *unused)
{
	struct cpuslab_cache *cache = create("TestSlub_RZ_alloc", CPUSLAB_CACHE_RED_ZONE);
	unsigned char *object = alloc(cache);

	(void)unused;
	CHECK(cpuslab_cache_validate(cache) == 0);
	object[SIZE] = 0x12;
	CHECK(cpuslab_cache_validate(cache) == 1);
	/* The first report has repaired it. */
	CHECK(cpuslab_cache_validate(cache) == 0);
	cpuslab_cache_free(cache, object);
	CHECK(cpuslab_cache_destroy(cache) == 0);
}

static void test_clobber_zone(void)
{
	CHECK(!stopped(clobber_zone, NULL));
	CHECK(strcmp(text,
		     "=============================================================================="
		     "\nBUG TestSlub_RZ_alloc: Right Redzone overwritten (pid N)\n"
		     "------------------------------------------------------------------------------"
		     "\n\n"
		     "ADDRESS-ADDRESS @offset=72. First byte 0x12 instead of 0xcc\n"
		     "Slab ADDRESS objects=93 used=1 slot=88\n"
		     "Object ADDRESS @offset=8 size=64 requested=64 allocated\n\n"
		     "Redzone   ADDRESS: cc cc cc cc cc cc cc cc                         ........\n"
		     "Object    ADDRESS: 11 11 11 11 11 11 11 11 11 11 11 11 11 11 11 11 ................\n"
		     "Object    ADDRESS: 11 11 11 11 11 11 11 11 11 11 11 11 11 11 11 11 ................\n"
		     "Object    ADDRESS: 11 11 11 11 11 11 11 11 11 11 11 11 11 11 11 11 ................\n"
		     "Object    ADDRESS: 11 11 11 11 11 11 11 11 11 11 11 11 11 11 11 11 ................\n"
		     "Redzone   ADDRESS: 12 cc cc cc cc cc cc cc                         ........\n"
		     "Padding   ADDRESS: 00 00 00 00 00 00 00 00                         ........\n"
		     "FIX TestSlub_RZ_alloc: Restoring Right Redzone ADDRESS-ADDRESS=0xcc\n\n") == 0,
	      "said: %s", text);
}

/* Where SLUB keeps the free pointer of a poisoned cache: behind the object. */
static void clobber_next_pointer(void *unused)
{
	struct cpuslab_cache *cache = create("TestSlub_next_ptr_free", CPUSLAB_CACHE_POISON);
	unsigned char *object = alloc(cache);

	(void)unused;
	cpuslab_cache_free(cache, object);
	for (size_t i = SIZE; i < SIZE + 8; i++)
		object[i] ^= 0xaa;
	/*
	 * Here nothing depends on it; with nothing behind the object these bytes are the next object's first
	 * word.
	 */
	CHECK(cpuslab_cache_validate(cache) == 1);
	CHECK(cpuslab_cache_validate(cache) == 0);
	CHECK(cpuslab_cache_destroy(cache) == 0);
}

static void clobber_byte(void *argument)
{
	struct cpuslab_cache *cache = create("TestSlub_byte_free", CPUSLAB_CACHE_POISON);
	unsigned char *object = alloc(cache);

	cpuslab_cache_free(cache, object);
	object[*(const size_t *)argument] = 0x9a;
	CHECK(cpuslab_cache_validate(cache) == 1);
	CHECK(cpuslab_cache_validate(cache) == 0);
	CHECK(cpuslab_cache_destroy(cache) == 0);
}

static void test_free_object(void)
{
	static const size_t first = 0, fiftieth = 50, last = SIZE - 1;

	CHECK(!stopped(clobber_next_pointer, NULL));
	said("BUG TestSlub_next_ptr_free: Poison overwritten (pid N)");
	said("First byte 0xc1 instead of 0x6b\n");

	CHECK(!stopped(clobber_byte, (void *)&first));
	said("BUG TestSlub_byte_free: Poison overwritten (pid N)");
	said("ADDRESS-ADDRESS @offset=0. First byte 0x9a instead of 0x6b\n");
	said("Object    ADDRESS: 9a 6b 6b 6b 6b 6b 6b 6b 6b 6b 6b 6b 6b 6b 6b 6b .kkkkkkkkkkkkkkk\n");

	CHECK(!stopped(clobber_byte, (void *)&fiftieth));
	said("ADDRESS-ADDRESS @offset=50. First byte 0x9a instead of 0x6b\n");
	said("Object ADDRESS @offset=0 size=64 free\n");
	said("Object    ADDRESS: 6b 6b 9a 6b 6b 6b 6b 6b 6b 6b 6b 6b 6b 6b 6b a5 kk.kkkkkkkkkkkk.\n");
	said("FIX TestSlub_byte_free: Restoring Poison ADDRESS-ADDRESS=0x6b\n");

	CHECK(!stopped(clobber_byte, (void *)&last));
	said("BUG TestSlub_byte_free: End Poison overwritten (pid N)");
	said("First byte 0x9a instead of 0xa5\n");
}

static void clobber_redzone_free(void *argument)
{
	struct cpuslab_cache *cache = create("TestSlub_RZ_free", CPUSLAB_CACHE_RED_ZONE);
	unsigned char *object = alloc(cache);

	cpuslab_cache_free(cache, object);
	object[*(const ptrdiff_t *)argument] = 0xab;
	CHECK(cpuslab_cache_validate(cache) == 1);
	CHECK(cpuslab_cache_destroy(cache) == 0);
}

static void test_redzone_free(void)
{
	static const ptrdiff_t behind = SIZE, before = -1;

	CHECK(!stopped(clobber_redzone_free, (void *)&behind));
	said("BUG TestSlub_RZ_free: Right Redzone overwritten (pid N)");
	said("First byte 0xab instead of 0xbb\n");
	CHECK(!stopped(clobber_redzone_free, (void *)&before));
	said("BUG TestSlub_RZ_free: Left Redzone overwritten (pid N)");
	said("First byte 0xab instead of 0xbb\n");
	said("Redzone   ADDRESS: bb bb bb bb bb bb bb ab ");
}

static void leak_destroy(void *unused)
{
	struct cpuslab_cache *cache = create("TestSlub_leak", CPUSLAB_CACHE_STORE_USER);
	unsigned char *object = alloc(cache);

	(void)unused;
	errno = 0;
	CHECK(cpuslab_cache_destroy(cache) == -1 && errno == EBUSY);
	/* Everything is unchanged. */
	CHECK(check_all_bytes(object, SIZE, 0x11));
	cpuslab_cache_free(cache, object);
	CHECK(cpuslab_cache_destroy(cache) == 0);
}

static void test_leak_destroy(void)
{
	CHECK(!stopped(leak_destroy, NULL));
	said("cpuslab: TestSlub_leak: ADDRESS: still allocated as its cache is destroyed\nAllocated in ");
	said(" age=");
}

/* ---- what stops a program -------------------------------------------------------------------------- */

enum {
	CHECKED = CPUSLAB_CACHE_CONSISTENCY_CHECKS,
	FULL = CHECKED | CPUSLAB_CACHE_RED_ZONE | CPUSLAB_CACHE_POISON
};

static void free_twice(void *unused)
{
	struct cpuslab_cache *cache = create("twice", FULL);
	unsigned char *object = alloc(cache);

	(void)unused;
	cpuslab_cache_free(cache, object);
	cpuslab_cache_free(cache, object);
}

static void free_inside(void *unused)
{
	struct cpuslab_cache *cache = create("inside", FULL);

	(void)unused;
	cpuslab_cache_free(cache, alloc(cache) + 8);
}

static void free_overflown(void *unused)
{
	struct cpuslab_cache *cache = create("overflown", FULL);
	unsigned char *object = alloc(cache);

	(void)unused;
	object[SIZE + 3] = 0;
	cpuslab_cache_free(cache, object);
}

static void free_underflown(void *unused)
{
	struct cpuslab_cache *cache = create("underflown", FULL);
	unsigned char *object = alloc(cache);

	(void)unused;
	object[-8] = 0;
	cpuslab_cache_free(cache, object);
}

/* Beyond the red zone, where only padding is. */
static void free_far_overflown(void *unused)
{
	struct cpuslab_cache *cache = create("far", FULL);
	unsigned char *object = alloc(cache);

	(void)unused;
	object[SIZE + 8] = 0;
	cpuslab_cache_free(cache, object);
}

static void write_after_free(void *unused)
{
	struct cpuslab_cache *cache = create("after", FULL);
	unsigned char *object = alloc(cache);

	(void)unused;
	cpuslab_cache_free(cache, object);
	object[9] = 1;
	alloc(cache);
}

static void test_stops(void)
{
	CHECK(stopped(free_twice, NULL));
	said("BUG twice: Object already free (pid N)\n");
	said("ADDRESS was to be freed\n");
	said("cpuslab: twice: stopping; CPUSLAB_OPTIONS=debug_continue:true goes on (pid N)\n");
	CHECK(stopped(free_inside, NULL));
	said("BUG inside: Invalid object pointer (pid N)\n");
	CHECK(stopped(free_overflown, NULL));
	said("BUG overflown: Right Redzone overwritten (pid N)\n");
	said("@offset=75. First byte 0x0 instead of 0xcc\n");
	CHECK(!strstr(text, "FIX"));
	CHECK(stopped(free_underflown, NULL));
	said("BUG underflown: Left Redzone overwritten (pid N)\n");
	said("@offset=0. First byte 0x0 instead of 0xcc\n");
	CHECK(stopped(free_far_overflown, NULL));
	said("BUG far: Object padding overwritten (pid N)\n");
	said("@offset=80. First byte 0x0 instead of 0x5a\n");
	CHECK(stopped(write_after_free, NULL));
	said("BUG after: Poison overwritten (pid N)\n");
	said("@offset=17. First byte 0x1 instead of 0x6b\n");
}

/* ---- what a flag alone does ------------------------------------------------------------------------ */

static void overflow_unchecked(void *unused)
{
	struct cpuslab_cache *cache = create("unchecked", CPUSLAB_CACHE_RED_ZONE | CPUSLAB_CACHE_POISON);
	unsigned char *object = alloc(cache);

	(void)unused;
	object[SIZE] = 1;
	cpuslab_cache_free(cache, object);
	CHECK(cpuslab_cache_destroy(cache) == 0);
}

/* Without the flag F, zones are checked on demand only. */
static void test_unchecked(void)
{
	CHECK(!stopped(overflow_unchecked, NULL));
	said_nothing();
}

static unsigned constructed;

static void construct(void *object)
{
	memset(object, 0x77, SIZE);
	constructed++;
}

/* Content that must survive a free is not poisoned; zones and padding are there all the same. */
static void keep_content(void *argument)
{
	struct cpuslab_cache_args args = {.name = "kept", .size = SIZE, .flags = FULL};

	if (argument)
		args.constructor = construct;
	else
		args.flags |= CPUSLAB_CACHE_TYPESAFE_BY_RCU;
	struct cpuslab_cache *cache = cpuslab_cache_create(&args);
	unsigned char *object = cpuslab_cache_alloc(cache);

	CHECK(object && (!argument || (constructed && check_all_bytes(object, SIZE, 0x77))));
	memset(object, 0x22, SIZE);
	cpuslab_cache_free(cache, object);
	CHECK(check_all_bytes(object, SIZE, 0x22));
	object[5] = 0x23; /* an RCU reader may, and a writer that holds its lock */
	CHECK(cpuslab_cache_validate(cache) == 0);
	CHECK(cpuslab_cache_alloc(cache) == object && object[5] == 0x23 && object[6] == 0x22);
	cpuslab_cache_free(cache, object);
	object[SIZE] = 0;
	CHECK(cpuslab_cache_validate(cache) == 1);
	CHECK(cpuslab_cache_destroy(cache) == 0);
}

static void test_content(void)
{
	CHECK(!stopped(keep_content, NULL));
	CHECK(!stopped(keep_content, ""));
}

static void trace(void *unused)
{
	struct cpuslab_cache *cache = create("traced", CPUSLAB_CACHE_TRACE);

	(void)unused;
	cpuslab_cache_free(cache, alloc(cache));
}

static void test_trace(void)
{
	CHECK(!stopped(trace, NULL));
	said("TRACE traced alloc ADDRESS size=64 inuse=1\n");
	said("TRACE traced free ADDRESS size=64 inuse=1\n");
}

/* ---- caches that are not debugged ------------------------------------------------------------------ */

static void test_undebugged(void)
{
	struct cpuslab_cache *cache = create("plain", 0), *debugged = create("debugged", FULL);
	struct cpuslab_counters before, after;
	void *object = cpuslab_cache_alloc(cache);

	CHECK(cpuslab_cache_validate(cache) == 0);
	cpuslab_cache_free(cache, object);
	cpuslab_read_counters(&before);
	for (int i = 0; i < 1000; i++)
		cpuslab_cache_free(cache, cpuslab_cache_alloc(cache));
	cpuslab_read_counters(&after);
	/* A thread that migrates may miss now and then. */
	CHECK(after.alloc_misses - before.alloc_misses < 20, "one of two caches is debugged, both miss");
	cpuslab_read_counters(&before);
	for (int i = 0; i < 1000; i++)
		cpuslab_cache_free(debugged, cpuslab_cache_alloc(debugged));
	cpuslab_read_counters(&after);
	CHECK(after.alloc_misses - before.alloc_misses >= 1000, "a debugged cache has a fast path");
	errno = 0;
	CHECK(cpuslab_validate("plain") == -1 && errno == ENOENT);
	CHECK(cpuslab_validate("debugged") == 0 && cpuslab_validate("debug*") == 0);
	CHECK(cpuslab_validate(NULL) == 0);
	CHECK(cpuslab_cache_destroy(cache) == 0 && cpuslab_cache_destroy(debugged) == 0);
}

int main(void)
{
	check_watchdog(100);
	test_clobber_zone();
	test_free_object();
	test_redzone_free();
	test_leak_destroy();
	test_stops();
	test_unchecked();
	test_content();
	test_trace();
	test_undebugged();
	return 0;
}
