/* SPDX-License-Identifier: MIT */
/*
 * The soft limit: a program whose live data are 80 % of it stays resident at most 1.05 times the limit,
 * whatever it allocates: small and large objects, phases of one size after the other, in threads, in a forked
 * child. (Without the limit `mixed` and `large` take 1.09 times as much.)
 *
 *   limit_soft WORK          one of the works below
 *   limit_soft WORK LIMIT    with another limit, for docs/performance/limits.md
 */
#include "check.h"

#include <sys/mman.h>

enum { LIMIT = 96 << 20, LIVE = LIMIT / 10 * 8, TABLE = 1 << 20 };

static struct block {
	char *memory;
	size_t size;
} *block; /* TABLE of them, which are not the allocator's */
static size_t live, peak, baseline;

static void look(void)
{
	size_t now = check_anonymous() - baseline;

	if (now > peak)
		peak = now;
}

static void put(size_t i, size_t size)
{
	if (block[i].memory)
		live -= block[i].size;
	free(block[i].memory);
	block[i] = (struct block){NULL, 0};
	if (!size)
		return;
	CHECK((block[i].memory = malloc(size)), "%zu of %zu", size, live);
	memset(block[i].memory, (int)i, size);
	block[i].size = size;
	live += size;
}

static size_t draw(uint64_t *random, size_t most)
{
	return 16 + check_below(random, check_below(random, most) + 1);
}

/* Fills up to LIVE, then replaces at random. */
static void replace(size_t most, unsigned rounds)
{
	uint64_t random = 1;
	size_t used = 0;

	while (live < LIVE)
		put(used++, draw(&random, most));
	for (unsigned i = 0; i < rounds; i++) {
		put(check_below(&random, used), live > LIVE ? 0 : draw(&random, most));
		if (i % 64 == 0)
			while (live < LIVE - (most < LIVE / 100 ? most : LIVE / 100))
				put(check_below(&random, used), draw(&random, most));
		if (i % (rounds / 50) == 0)
			look();
	}
}

static void small(void)
{
	replace(1000, 30000);
}

static void mixed(void)
{
	replace(60000, 20000);
}

static void large(void)
{
	replace(3 << 20, 1000);
}

/* LIVE in objects of one size, then of another: what the last one left must make room. */
static void phases(void)
{
	for (size_t size = 128; size <= 131072; size *= 4) {
		size_t used = 0;

		while (live + size <= LIVE)
			put(used++, size);
		look();
		/* All but one in eight, which keep slabs in use. */
		for (size_t i = 0; i < used; i++)
			if (i % 8 || size > 1024)
				put(i, 0);
		look();
		for (size_t i = 0; i < used; i++)
			put(i, 0);
	}
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static size_t used_by_threads;

static void *work(void *argument)
{
	uint64_t random = (uintptr_t)argument;

	for (unsigned i = 0; i < 400000; i++) {
		size_t at = check_below(&random, used_by_threads), size = draw(&random, 2000);
		char *memory = malloc(size);

		CHECK(memory);
		*memory = 1;
		pthread_mutex_lock(&lock);
		struct block old = block[at];
		bool fits = live + size - old.size <= LIVE;

		if (fits) {
			block[at] = (struct block){memory, size};
			live += size - old.size;
		}
		pthread_mutex_unlock(&lock);
		free(fits ? old.memory : memory);
		if (i % 20000 == 0) {
			pthread_mutex_lock(&lock);
			look();
			pthread_mutex_unlock(&lock);
		}
	}
	return NULL;
}

static void threads(void)
{
	pthread_t thread[4];
	uint64_t random = 1;

	while (live < LIVE)
		put(used_by_threads++, draw(&random, 2000));
	for (uintptr_t i = 0; i < 4; i++)
		CHECK(!pthread_create(&thread[i], NULL, work, (void *)(i + 1)));
	for (int i = 0; i < 4; i++)
		pthread_join(thread[i], NULL);
}

static void in_fork(void)
{
	size_t used = 0;
	uint64_t random = 7;

	while (live < LIVE)
		put(used++, draw(&random, 1000));
	pid_t child = fork();

	CHECK(child >= 0);
	if (child) {
		int status;

		CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
		_exit(WEXITSTATUS(status));
	}
	for (size_t i = 0; i < used; i++)
		put(i, 0);
	live = 0;
	phases();
}

static const struct {
	const char *name;
	void (*run)(void);
} works[] = {{"small", small},   {"mixed", mixed},     {"large", large},
	     {"phases", phases}, {"threads", threads}, {"fork", in_fork}};

int main(int argc, char **argv)
{
	check_watchdog(120);
	if (!check_cpuslab())
		return CHECK_SKIPPED;
	block = mmap(NULL, TABLE * sizeof *block, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(block != MAP_FAILED);
	/* What is resident of the table and the process's own is not the allocator's. */
	memset(block, 0, TABLE * sizeof *block);
	baseline = check_anonymous();
	CHECK(cpuslab_ctl("limit", argc > 2 ? argv[2] : "96M") == 0);
	for (size_t i = 0; i < sizeof works / sizeof *works; i++)
		if (argc > 1 && strcmp(argv[1], works[i].name) == 0) {
			works[i].run();
			printf("%s: resident at most %.3f of the limit\n", works[i].name,
			       (double)peak / LIMIT);
			CHECK(argc > 2 || peak <= LIMIT / 100 * 105, "%zu", peak);
			return 0;
		}
	return 2;
}
