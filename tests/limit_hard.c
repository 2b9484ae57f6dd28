/* SPDX-License-Identifier: MIT */
/*
 * The hard limit: allocations of every kind fail with ENOMEM above it, after all that is free has gone back,
 * and not long before; what is resident stays below it; a realloc that fails leaves its block as it was; once
 * memory is free again, or the limit is raised, all succeeds.
 *
 *   limit_hard cgroup    the limit is what the control group's memory.high says
 */
#include "check.h"

#include <cpuslab/cache.h>
#include <sys/stat.h>

enum { LIMIT = 64 << 20 };

/* Allocates blocks, linked through themselves, until none is left; returns how many bytes they are. */
static size_t exhaust(size_t size, void ***blocks)
{
	size_t sum = 0;
	void **one;

	for (*blocks = NULL; errno = 0, (one = malloc(size)); sum += malloc_usable_size(one)) {
		CHECK(sum <= LIMIT, "%zu", size);
		memset(one, 1, size);
		*one = *blocks;
		*blocks = one;
	}
	CHECK(errno == ENOMEM);
	return sum;
}

static void release(void **blocks)
{
	while (blocks) {
		void **next = *blocks;

		free(blocks);
		blocks = next;
	}
}

static void test_sizes(void)
{
	static const size_t sizes[] = {50000, 100, 3000000, 1000, 9000, 200000, 24, 20000000};
	size_t before = check_anonymous();
	void **blocks;

	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		size_t sum = exhaust(sizes[i], &blocks), size = sizes[i];
		size_t now = check_anonymous() - before;

		CHECK(now <= LIMIT / 100 * 105, "%zu: resident %zu", size, now);
		/* Less what a slab or a block leaves over, and metadata. */
		CHECK(sum >= LIMIT / 100 * 85 || size > LIMIT / 10, "%zu: only %zu", size, sum);
		release(blocks);
	}
}

static void refused(void *memory)
{
	CHECK(!memory && errno == ENOMEM);
	errno = 0;
}

static void test_calls(void)
{
	void **blocks;

	errno = 0;
	refused(malloc(LIMIT + 1));
	refused(calloc(LIMIT / 8, 9));
	refused(aligned_alloc(4096, LIMIT + 4096));
	refused(memalign(1 << 21, LIMIT + 4096));
	CHECK(posix_memalign((void **)&blocks, 64, LIMIT + 1) == ENOMEM);
	for (size_t size = 1000; size < LIMIT; size *= 20) {
		unsigned char *block = malloc(size);

		CHECK(block);
		memset(block, 7, size);
		errno = 0;
		refused(realloc(block, LIMIT + size));
		for (size_t i = 0; i < size; i++)
			CHECK(block[i] == 7);
		/* Up to the limit it grows. */
		CHECK((block = realloc(block, LIMIT / 2)));
		free(block);
	}
	struct cpuslab_cache *cache =
		cpuslab_cache_create(&(struct cpuslab_cache_args){.name = "limited", .size = 500});

	CHECK(cache && exhaust(100000, &blocks) > 0);
	void **small;

	(void)exhaust(500, &small);
	void *held[200000 / 500 + 4096 * 4];
	size_t count = 0;

	while ((held[count] = cpuslab_cache_alloc(cache)))
		CHECK(++count < sizeof held / sizeof *held);
	release(small);
	release(blocks);
	CHECK((held[count++] = cpuslab_cache_alloc(cache)));
	while (count)
		cpuslab_cache_free(cache, held[--count]);
	cpuslab_cache_destroy(cache);
}

static void test_raised(void)
{
	void *block;

	errno = 0;
	refused(malloc(LIMIT * 2));
	CHECK(cpuslab_ctl("limit_hard", "256M") == 0 && (block = malloc(LIMIT * 2)));
	/* Below what is in use: nothing more, and frees work. */
	CHECK(cpuslab_ctl("limit_hard", "64M") == 0);
	errno = 0;
	refused(malloc(1 << 20));
	free(block);
	CHECK((block = malloc(1 << 20)));
	free(block);
	CHECK(cpuslab_ctl("limit_hard", "0") == 0 && (block = malloc(LIMIT * 2)));
	free(block);
}

static void *fill(void *unused)
{
	void **blocks;

	(void)unused;
	for (int i = 0; i < 5; i++) {
		(void)exhaust(2000, &blocks);
		release(blocks);
	}
	return NULL;
}

static void test_threads(void)
{
	size_t before = check_anonymous();
	pthread_t thread[3];

	for (int i = 0; i < 3; i++)
		CHECK(!pthread_create(&thread[i], NULL, fill, NULL));
	for (int i = 0; i < 3; i++)
		pthread_join(thread[i], NULL);
	CHECK(check_anonymous() < before + LIMIT / 100 * 105);
	(void)fill(NULL);
}

enum { PATH = 600 };
static const char *limit_file;

static bool write_to(const char *group, const char *name, const char *text)
{
	char path[PATH + 100];

	snprintf(path, sizeof path, "%s/%s", group, name);
	int file = open(path, O_WRONLY);
	bool done = file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text);

	if (file >= 0)
		close(file);
	return done;
}

static void in_group(void *group)
{
	char value[32];
	void *block;

	CHECK(write_to(group, "cgroup.procs", "0"));
	CHECK(cpuslab_ctl("limit_hard", "memory.high") == 0);
	errno = 0;
	refused(malloc(600 << 20));
	CHECK((block = malloc(300 << 20)));
	free(block);
	CHECK(cpuslab_ctl_get("limit_hard", value, sizeof value) == 0 && strcmp(value, "memory.high") == 0);
	/* It is read again when asked again. */
	CHECK(write_to(group, limit_file, "1073741824") && cpuslab_ctl("limit_hard", "memory.high") == 0);
	CHECK((block = malloc(600 << 20)));
	free(block);
	errno = 0;
	refused(malloc(1100 << 20));
}

/* A group in this process's own, in either hierarchy, with that limit; false where that is not permitted. */
static bool make_group(char group[static PATH])
{
	static const char *const ways[][3] = {
		{":memory:", "/sys/fs/cgroup/memory", "memory.soft_limit_in_bytes"},
		{"0::", "/sys/fs/cgroup", "memory.high"}};
	char text[4096];
	int file = open("/proc/self/cgroup", O_RDONLY);
	ssize_t length = read(file, text, sizeof text - 1);

	close(file);
	text[length > 0 ? length : 0] = 0;
	for (size_t i = 0; i < 2; i++) {
		const char *own = strstr(text, ways[i][0]);

		if (!own)
			continue;
		own += strlen(ways[i][0]);
		snprintf(group, PATH, "%s%.*s/cpuslab-%d", ways[i][1], (int)strcspn(own, "\n"), own,
			 getpid());
		limit_file = ways[i][2];
		if (mkdir(group, 0700) != 0)
			continue;
		if (write_to(group, limit_file, "536870912"))
			return true;
		rmdir(group);
	}
	return false;
}

static int test_group(void)
{
	char group[PATH], said[4096];

	if (!make_group(group))
		return CHECK_SKIPPED;
	int status = check_child(in_group, group, said, sizeof said);

	rmdir(group);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s", said);
	return 0;
}

int main(int argc, char **argv)
{
	check_watchdog(120);
	if (!check_cpuslab())
		return CHECK_SKIPPED;
	if (argc > 1 && strcmp(argv[1], "cgroup") == 0)
		return test_group();
	free(malloc(1));
	CHECK(cpuslab_ctl("limit_hard", "64M") == 0);
	test_sizes();
	test_calls();
	test_threads();
	test_raised();
	return 0;
}
