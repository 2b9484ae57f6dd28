/* SPDX-License-Identifier: MIT */
/*
 * fork_in_start: a process that has threads before it first calls the library, as one that opens it late has,
 * forks while one of them starts the library.  Nobody can finish the start in the child: its first call ends
 * it with one line.  The parent goes on, and so do children that it has afterwards.
 */
#include "own_malloc.h"

#include <cpuslab/cache.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

/* What each start calls once.  The first one stays in it until it may go on. */
static bool reached, may_go_on;

int madvise(void *address, size_t bytes, int advice)
{
	if (advice == MADV_WIPEONFORK && !__atomic_exchange_n(&reached, true, __ATOMIC_ACQ_REL))
		while (!__atomic_load_n(&may_go_on, __ATOMIC_ACQUIRE))
			usleep(100);
	return (int)syscall(SYS_madvise, address, bytes, advice);
}

static void use_cache(void *unused)
{
	const struct cpuslab_cache_args arguments = {
		.name = "test", .size = 40, .flags = CPUSLAB_CACHE_NO_MERGE};
	struct cpuslab_cache *cache = cpuslab_cache_create(&arguments);
	(void)unused;
	CHECK(cache);
	void *object = cpuslab_cache_alloc(cache);
	CHECK(object);
	cpuslab_cache_free(cache, object);
	cpuslab_cache_destroy(cache);
}

static void *use(void *unused)
{
	use_cache(unused);
	return unused;
}

int main(void)
{
	char text[1024];
	check_watchdog(60);
	pthread_t thread = check_thread(use, NULL);
	while (!__atomic_load_n(&reached, __ATOMIC_ACQUIRE))
		usleep(100);
	int status = check_child(use_cache, NULL, text, sizeof text);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "wait status %#x: %s", (unsigned)status,
	      text);
	char *end = strstr(text, "forked while another thread started the library");
	CHECK(end && strchr(end, '\n') == text + strlen(text) - 1, "the child said: %s", text);
	__atomic_store_n(&may_go_on, true, __ATOMIC_RELEASE);
	use_cache(NULL);
	check_join(thread);
	CHECK_EXITED(check_child(use_cache, NULL, text, sizeof text), 0);
	printf("%s\n", check_mode());
	return 0;
}
