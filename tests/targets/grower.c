/* SPDX-License-Identifier: MIT */
/* grower: grows a vector to 3 MiB by a page at a time, and prints how many bytes it may use. */
#include "check.h"

#include <malloc.h>

int main(void)
{
	enum { STEP = 4096, END = 3 << 20 };
	void *vector = NULL;

	for (size_t bytes = STEP; bytes <= END; bytes += STEP)
		CHECK(vector = realloc(vector, bytes));
	dprintf(STDOUT_FILENO, "%zu\n", malloc_usable_size(vector));
	pause();
	return 0;
}
