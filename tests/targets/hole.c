/* SPDX-License-Identifier: MIT */
/* Others have all addresses but one hole, in which the library starts: 10000 objects of 1000 bytes
 * (sight_hole.sh). */
#include "../check.h"

#include <sys/mman.h>

enum { HOLE = 256 << 20, OBJECTS = 10000 };

static void *take(size_t bytes)
{
	void *address = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return address == MAP_FAILED ? NULL : address;
}

int main(void)
{
	void *hole = take(HOLE);

	for (size_t bytes = (size_t)1 << 46; bytes >= 4096; bytes /= 2)
		while (take(bytes))
			;
	CHECK(hole && munmap(hole, HOLE) == 0);
	for (int i = 0; i < OBJECTS; i++) {
		void *volatile object = malloc(1000);

		CHECK(object);
		memset(object, 1, 1000);
	}
	CHECK(write(STDOUT_FILENO, "ready\n", 6) == 6);
	pause();
	return 0;
}
