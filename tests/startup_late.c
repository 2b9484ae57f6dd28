/* SPDX-License-Identifier: MIT */
/*
 * startup_late: a process that has threads before it first calls the library, as one that opens it late has.
 * As soon as one thread's start lets others use the library, these may come to their end: what follows that
 * finds all that it needs, though the start is not over.
 */
#include "own_malloc.h"

#include <cpuslab/cache.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

/*
 * Where the system does not wipe memory on fork, a start asks libc for a handler instead, when others may use
 * the library.  It stays there until it may go on.
 */
static bool refused, reached, may_go_on;

int madvise(void *address, size_t bytes, int advice)
{
	if (advice != MADV_WIPEONFORK)
		return (int)syscall(SYS_madvise, address, bytes, advice);
	__atomic_store_n(&refused, true, __ATOMIC_RELEASE);
	errno = EINVAL;
	return -1;
}

extern int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *object);

int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *object)
{
	(void)prepare, (void)parent, (void)child, (void)object;
	if (__atomic_load_n(&refused, __ATOMIC_ACQUIRE) &&
	    !__atomic_exchange_n(&reached, true, __ATOMIC_ACQ_REL))
		while (!__atomic_load_n(&may_go_on, __ATOMIC_ACQUIRE))
			usleep(100);
	return 0;
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

int main(void)
{
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
