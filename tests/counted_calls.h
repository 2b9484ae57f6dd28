/* SPDX-License-Identifier: MIT */
/*
 * counted_calls: the program's own syscall(), through which the library makes system calls that have no
 * wrapper, and its own madvise() if it defines one.  Each call goes to the test, which counts it, and ends in
 * libc_syscall().
 */
#ifndef CPUSLAB_TESTS_COUNTED_CALLS_H
#define CPUSLAB_TESTS_COUNTED_CALLS_H

#include <dlfcn.h>
#include <stdarg.h>
#include <sys/syscall.h>

/* Provided by the test. */
static long on_syscall(long number, const long argument[static 6]);

static long libc_syscall(long number, const long argument[static 6])
{
	static long (*own)(long, ...);

	if (!own)
		own = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
	return own(number, argument[0], argument[1], argument[2], argument[3], argument[4], argument[5]);
}

long syscall(long number, ...)
{
	va_list list;
	long argument[6];

	va_start(list, number);
	for (int i = 0; i < 6; i++)
		argument[i] = va_arg(list, long);
	va_end(list);
	return on_syscall(number, argument);
}

#endif
