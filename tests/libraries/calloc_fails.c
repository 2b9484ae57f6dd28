/* SPDX-License-Identifier: MIT */
/*
 * calloc_fails: refuses memory to the cpuslab command.  Allocation number FAILS_AT fails, counted in each
 * process from when it accepts a client, and so do all that follow if FAILS_ON is set.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>

static unsigned long count;
static bool armed;

static bool fails(void)
{
	const char *at = getenv("FAILS_AT");

	if (!armed || !at)
		return false;
	unsigned long number = strtoul(at, NULL, 10);

	count++;
	return count == number || (count > number && getenv("FAILS_ON"));
}

int accept4(int listener, struct sockaddr *address, socklen_t *length, int flags)
{
	static int (*next)(int, struct sockaddr *, socklen_t *, int);

	if (!next)
		next = (int (*)(int, struct sockaddr *, socklen_t *, int))dlsym(RTLD_NEXT, "accept4");
	int connection = next(listener, address, length, flags);

	armed = true;
	return connection;
}

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *old, size_t bytes);

static void *no_memory(void)
{
	errno = ENOMEM;
	return NULL;
}

void *malloc(size_t bytes)
{
	return fails() ? no_memory() : __libc_malloc(bytes);
}

void *calloc(size_t number, size_t bytes)
{
	return fails() ? no_memory() : __libc_calloc(number, bytes);
}

void *realloc(void *old, size_t bytes)
{
	return fails() ? no_memory() : __libc_realloc(old, bytes);
}

void *reallocarray(void *old, size_t number, size_t bytes)
{
	size_t all;

	return __builtin_mul_overflow(number, bytes, &all) || fails() ? no_memory()
								      : __libc_realloc(old, all);
}
