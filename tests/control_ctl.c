/* SPDX-License-Identifier: MIT */
/*
 * cpuslab_ctl: the options of the table that are said to change do so, in each form of a value, and what they
 * decide follows at once; the others and wrong values are refused without an effect; threads may change
 * options while others allocate; a forked child has its parent's values, and its own from then on; mallopt's
 * M_TRIM_THRESHOLD is the option dirty.
 */
#include "check.h"

#include <cpuslab/profile.h>

/* The options by whether they change, from the table that the parser reads. */
static const struct {
	const char *name;
	bool changes;
} table[] = {
#define OPTION(name, kind, initial, text)  {#name, false},
#define SETTING(name, kind, initial, text) {#name, true},
#include "../src/options/options.def"
#undef OPTION
};

static void expect(const char *name, const char *value)
{
	char found[32];

	CHECK(cpuslab_ctl_get(name, found, sizeof found) == 0, "%s", name);
	CHECK(strcmp(found, value) == 0, "%s is %s, and not %s", name, found, value);
}

static void refuse(int error, const char *name, const char *value)
{
	errno = 0;
	CHECK(cpuslab_ctl(name, value) == -1 && errno == error, "%s:%s", name, value);
}

static void test_values(void)
{
	CHECK(cpuslab_ctl("decay", "100") == 0 && cpuslab_ctl("dirty", "4M") == 0);
	expect("decay", "100");
	expect("dirty", "4M");
	CHECK(cpuslab_ctl("dirty", "4194304") == 0 && cpuslab_ctl("merge", "0") == 0);
	expect("dirty", "4M");
	expect("merge", "false");
	CHECK(cpuslab_ctl("merge", "true") == 0);
	expect("merge", "true");
	refuse(EINVAL, "decay", "");
	refuse(EINVAL, "decay", "-1");
	refuse(EINVAL, "decay", "1,dirty:2M");
	refuse(EINVAL, "decay:1,dirty", "2M");
	refuse(EINVAL, "merge", "maybe");
	refuse(EINVAL, "dirty", "99999999999999999999");
	refuse(EINVAL, "", "1");
	refuse(EINVAL, "no_such_option", "1");
	expect("decay", "100");
	expect("dirty", "4M");

	char text[3];

	errno = 0;
	CHECK(cpuslab_ctl_get("decay", text, sizeof text) == -1 && errno == ERANGE);
	CHECK(cpuslab_ctl_get("nothing", text, sizeof text) == -1 && errno == EINVAL);
}

/* Each option takes the value that it has, or is fixed. */
static void test_each(void)
{
	unsigned changing = 0;
	char value[32];

	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		CHECK(cpuslab_ctl_get(table[i].name, value, sizeof value) == 0);
		if (table[i].changes)
			CHECK(cpuslab_ctl(table[i].name, value) == 0, "%s", table[i].name);
		else
			refuse(EPERM, table[i].name, value);
		changing += table[i].changes;
	}
	CHECK(changing >= 11 && changing < sizeof table / sizeof *table);
}

static uint64_t purged(void)
{
	struct cpuslab_counters counters;

	cpuslab_read_counters(&counters);
	return counters.purged_bytes;
}

/* 32 MiB that wait to go back by age go back in the next calls, once there is nothing to wait for. */
static void returns_after(void (*change)(void))
{
	enum { BLOCKS = 32, BYTES = 1 << 20, CALLS = 200 };
	void *block[BLOCKS];

	CHECK(cpuslab_ctl("decay", "1000000") == 0 && cpuslab_ctl("dirty", "1G") == 0);
	for (int i = 0; i < BLOCKS; i++)
		CHECK((block[i] = malloc(BYTES)) && memset(block[i], 1, BYTES));
	/* So that what follows is no fall, after which most goes back anyway. */
	void *rest[3 * BLOCKS];

	for (int i = 0; i < 3 * BLOCKS; i++)
		CHECK((rest[i] = malloc(BYTES)) && memset(rest[i], 1, BYTES));
	for (int i = 0; i < BLOCKS; i++)
		free(block[i]);
	uint64_t before = purged();

	for (int i = 0; i < CALLS; i++)
		free(malloc(3 << 20));
	CHECK(purged() - before < 4u << 20, "%lu", purged() - before);
	change();
	for (int i = 0; i < CALLS; i++)
		free(malloc(3 << 20));
	CHECK(purged() - before >= 28u << 20, "%lu", purged() - before);
	for (int i = 0; i < 3 * BLOCKS; i++)
		free(rest[i]);
	malloc_trim(0);
}

static void no_decay(void)
{
	CHECK(cpuslab_ctl("decay", "0") == 0);
}

static void little_dirty(void)
{
	CHECK(cpuslab_ctl("dirty", "1M") == 0);
}

static void trim_threshold(void)
{
	CHECK(mallopt(M_TRIM_THRESHOLD, 1 << 20) == 1);
	expect("dirty", "1M");
}

static void test_mallopt(void)
{
	CHECK(mallopt(M_TRIM_THRESHOLD, -1) == 1);
	char text[32];

	CHECK(cpuslab_ctl_get("dirty", text, sizeof text) == 0 && strtoull(text, NULL, 10) == SIZE_MAX);
	/* No meaning here, and no effect. */
	CHECK(mallopt(M_MMAP_THRESHOLD, 4096) == 1 && mallopt(M_ARENA_MAX, 1) == 1);
	CHECK(cpuslab_ctl("dirty", "256M") == 0);
}

static void test_profile(void)
{
	CHECK(cpuslab_ctl("profile", "64K") == 0);
	int null = open("/dev/null", O_WRONLY);

	CHECK(null >= 0 && cpuslab_profile_write(null, CPUSLAB_PROFILE_TEXT) == 0);
	close(null);
	CHECK(cpuslab_ctl("profile", "0") == 0);
	expect("profile", "0");
}

static bool over;

static void *change(void *argument)
{
	uint64_t random = (uintptr_t)argument;
	static const char *const values[] = {"0", "1", "20", "1000"};

	while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
		CHECK(cpuslab_ctl("decay", values[check_below(&random, 4)]) == 0);
		CHECK(cpuslab_ctl("dirty", check_below(&random, 2) ? "1M" : "256M") == 0);
		refuse(EPERM, "hardened", "1");
	}
	return NULL;
}

static void test_threads(void)
{
	enum { OBJECTS = 2000, ROUNDS = 100000 };
	static unsigned char *object[OBJECTS];
	pthread_t thread[2];
	uint64_t random = 9;

	for (uintptr_t i = 0; i < 2; i++)
		CHECK(!pthread_create(&thread[i], NULL, change, (void *)(i + 1)));
	for (unsigned round = 0; round < ROUNDS; round++) {
		size_t i = check_below(&random, OBJECTS), bytes = 1 + check_below(&random, 9000);

		CHECK(!object[i] || *object[i] == (unsigned char)i);
		free(object[i]);
		CHECK((object[i] = malloc(bytes)));
		memset(object[i], (int)i, bytes);
	}
	__atomic_store_n(&over, true, __ATOMIC_RELAXED);
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	for (int i = 0; i < OBJECTS; i++)
		free(object[i]);
}

static void in_child(void *unused)
{
	(void)unused;
	expect("decay", "77");
	CHECK(cpuslab_ctl("decay", "78") == 0);
	expect("decay", "78");
}

static void test_fork(void)
{
	char said[256];

	CHECK(cpuslab_ctl("decay", "77") == 0);
	int status = check_child(in_child, NULL, said, sizeof said);

	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s", said);
	expect("decay", "77");
}

int main(void)
{
	check_watchdog(60);
	if (!check_cpuslab())
		return CHECK_SKIPPED;
	test_values();
	test_each();
	returns_after(no_decay);
	returns_after(little_dirty);
	returns_after(trim_threshold);
	test_mallopt();
	test_profile();
	test_threads();
	test_fork();
	return 0;
}
