/* SPDX-License-Identifier: MIT */
/*
 * startup_no_memory: where the system gives the library no memory to start with, each allocation function
 * returns NULL with ENOMEM, however often it is called; and once there is memory, all of them work.
 */
#include "allocate_by.h"
#include "check.h"

#include <sys/resource.h>

/* A size of each kind: zero, of classes, between them, large, more than there is. */
static const size_t sizes[] = {0, 1, 24, 100, 1000, 5000, 40000, 300000, 1 << 20, 40 << 20, PTRDIFF_MAX};

enum { SIZES = sizeof sizes / sizeof *sizes };

int main(void)
{
	struct rlimit was, none;
	void *objects[ALLOCATE_KINDS][SIZES];
	int errors[ALLOCATE_KINDS][SIZES];
	CHECK(getrlimit(RLIMIT_AS, &was) == 0);
	none = was;
	none.rlim_cur = 1 << 20; /* less than is already mapped */
	CHECK(setrlimit(RLIMIT_AS, &none) == 0);
	for (int round = 0; round < 2; round++) {
		for (int kind = 0; kind < ALLOCATE_KINDS; kind++)
			for (int i = 0; i < SIZES; i++) {
				errno = 0;
				objects[kind][i] = allocate_by(kind, sizes[i]);
				errors[kind][i] = errno;
			}
		mallinfo2();
		malloc_trim(0);
	}
	CHECK(setrlimit(RLIMIT_AS, &was) == 0);
	if (objects[0][1])
		check_skip("the library has started before main, or another malloc serves");
	for (int kind = 0; kind < ALLOCATE_KINDS; kind++)
		for (int i = 0; i < SIZES; i++)
			CHECK(!objects[kind][i] && errors[kind][i] == ENOMEM,
			      "kind %d, %zu bytes: %p, errno %d", kind, sizes[i], objects[kind][i],
			      errors[kind][i]);
	for (int kind = 0; kind < ALLOCATE_KINDS; kind++)
		for (int i = 0; i < SIZES - 1; i++) {
			char *object = allocate_by(kind, sizes[i]);
			CHECK(object, "kind %d, %zu bytes", kind, sizes[i]);
			check_stamp(object, sizes[i], sizes[i]);
			CHECK_STAMP(object, sizes[i], sizes[i]);
			free(object);
		}
	return 0;
}
