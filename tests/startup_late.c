/* SPDX-License-Identifier: MIT */
/*
 * startup_late: a process has threads before it first calls the library, for instance because it opens it
 * late.  As soon as one thread's start lets others use the library, these may end: the code run at their end
 * finds all that it needs, though the start is not over.
 */
#include "own_malloc.h"

#include <cpuslab/cache.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/*
 * Called by a start once others may use the library: it ensures that standard error exists when the process
 * ends.  The start stays here until it may go on.
 */
static bool reached, may_go_on;

int fstat(int file, struct stat *status)
{
	if (!__atomic_exchange_n(&reached, true, __ATOMIC_ACQ_REL))
		while (!__atomic_load_n(&may_go_on, __ATOMIC_ACQUIRE))
			usleep(100);
	return (int)syscall(SYS_fstat, file, status);
}

static void *use(void *unused)
{
	const struct cpuslab_cache_args arguments = {
		.name = "test", .size = 40, .flags = CPUSLAB_CACHE_NO_MERGE};
	struct cpuslab_cache *cache = cpuslab_cache_create(&arguments);
	CHECK(cache);
	void *object = cpuslab_cache_alloc(cache);
	CHECK(object);
	cpuslab_cache_free(cache, object);
	CHECK(cpuslab_cache_destroy(cache) == 0);
	return unused;
}

/* The library reads its options before main. */
static void begin_again(char **argv)
{
	const char *options = getenv("CPUSLAB_OPTIONS");
	char more[256];

	if (options && strstr(options, "leaks_at_exit"))
		return;
	snprintf(more, sizeof more, "%s%sleaks_at_exit:true", options ? options : "", options ? "," : "");
	CHECK(setenv("CPUSLAB_OPTIONS", more, 1) == 0);
	CHECK(execv("/proc/self/exe", argv) == 0);
}

int main(int argc, char **argv)
{
	(void)argc;
	begin_again(argv);
	check_watchdog(60);
	pthread_t starter = check_thread(use, NULL);
	while (!__atomic_load_n(&reached, __ATOMIC_ACQUIRE))
		usleep(100);
	for (int i = 0; i < 3; i++)
		check_join(check_thread(use, NULL));
	__atomic_store_n(&may_go_on, true, __ATOMIC_RELEASE);
	check_join(starter);
	printf("%s\n", check_mode());
	return 0;
}
