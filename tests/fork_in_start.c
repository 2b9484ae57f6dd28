/* SPDX-License-Identifier: MIT */
/*
 * fork_in_start: a process that has threads before it first calls the library, for instance because it opens
 * it late, forks while one of them is starting the library.  Nobody can finish the start in the child: its
 * first call ends it with a one-line message.  The parent goes on, and so do children forked later.
 *
 *   fork_in_start wiped      the system is asked to wipe memory on fork
 *   fork_in_start handled    libc is asked for a fork handler instead, which no earlier child has
 */
#include "own_malloc.h"

#include <cpuslab/cache.h>
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

static bool handled, reached, may_go_on;

/* Called once by each start.  The first thread stays in it until it may go on. */
static void stay(void)
{
	if (!__atomic_exchange_n(&reached, true, __ATOMIC_ACQ_REL))
		while (!__atomic_load_n(&may_go_on, __ATOMIC_ACQUIRE))
			usleep(100);
}

int madvise(void *address, size_t bytes, int advice)
{
	if (advice == MADV_WIPEONFORK && handled) {
		errno = EINVAL;
		return -1;
	}
	if (advice == MADV_WIPEONFORK)
		stay();
	return (int)syscall(SYS_madvise, address, bytes, advice);
}

extern int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *object);

int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *object)
{
	__typeof__(&__register_atfork) libcs =
		(__typeof__(&__register_atfork))dlsym(RTLD_NEXT, "__register_atfork");

	CHECK(libcs);
	if (handled)
		stay();
	return libcs(prepare, parent, child, object);
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

int main(int argc, char **argv)
{
	char text[1024];
	check_watchdog(60);
	handled = argc > 1 && strcmp(argv[1], "handled") == 0;
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
