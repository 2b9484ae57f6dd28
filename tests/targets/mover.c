/* SPDX-License-Identifier: MIT */
/*
 * mover ASK DONE: holds many objects of one size from one function, or as many of another size from another
 * function, and switches between the two for each byte read from ASK; a byte into DONE confirms it.  At each
 * moment in between it has one or the other, so a reader that sees both, or none, is wrong.  Both sizes are
 * those of hosts (src/malloc/size_class.h), whose classes have all their objects from the first on.
 */
#include "check.h"

#include <fcntl.h>

enum { OBJECTS = 1000 };

static void *objects[OBJECTS];

__attribute__((noinline)) static void hold_larger(void)
{
	for (unsigned i = 0; i < OBJECTS; i++)
		CHECK(objects[i] = malloc(1024));
}

__attribute__((noinline)) static void hold_smaller(void)
{
	for (unsigned i = 0; i < OBJECTS; i++)
		CHECK(objects[i] = malloc(768));
}

static void free_all(void)
{
	for (unsigned i = 0; i < OBJECTS; i++)
		free(objects[i]);
}

int main(int argc, char **argv)
{
	CHECK(argc == 3);
	/* Opened for reading and writing: so there is no end-of-file while the other end is not open. */
	int ask = open(argv[1], O_RDWR), done = open(argv[2], O_RDWR);
	char byte;

	CHECK(ask >= 0 && done >= 0);
	hold_larger();
	dprintf(STDOUT_FILENO, "up\n");
	for (unsigned turn = 0; read(ask, &byte, 1) == 1; turn++) {
		free_all();
		if (turn % 2)
			hold_larger();
		else
			hold_smaller();
		CHECK(write(done, &byte, 1) == 1);
	}
	return 0;
}
