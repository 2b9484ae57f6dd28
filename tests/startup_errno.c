/* SPDX-License-Identifier: MIT */
/*
 * startup_errno: a first malloc that succeeds, and a first free, leave errno alone, also where the kernel is
 * too old to answer the library's questions.
 */
#include "check.h"

#include <dlfcn.h>
#include <sys/auxv.h>

#ifndef AT_RSEQ_FEATURE_SIZE
#define AT_RSEQ_FEATURE_SIZE 27
#endif

enum { NONE_OF_THEIRS = 77 };
static bool asked;

/* As on a kernel before 6.3. */
unsigned long getauxval(unsigned long type)
{
	if (type != AT_RSEQ_FEATURE_SIZE)
		return ((unsigned long (*)(unsigned long))dlsym(RTLD_NEXT, "getauxval"))(type);
	asked = true;
	errno = ENOENT;
	return 0;
}

static void *first_free(void *object)
{
	errno = NONE_OF_THEIRS;
	free(object);
	CHECK(errno == NONE_OF_THEIRS, "errno is %d", errno);
	return NULL;
}

int main(void)
{
	pthread_t thread;
	bool before = asked;
	errno = NONE_OF_THEIRS;
	void *object = malloc(100);
	int after = errno;
	CHECK(object && after == NONE_OF_THEIRS, "errno is %d", after);
	CHECK(pthread_create(&thread, NULL, first_free, object) == 0 && pthread_join(thread, NULL) == 0);
	if (before || !asked)
		check_skip("the library has not asked here, or before main");
	return 0;
}
