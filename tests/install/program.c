/* SPDX-License-Identifier: MIT */
/* A program built by somebody else against the installed library, as C and as C++. */
#include <cpuslab/cpuslab.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void)
{
	enum { COUNT = 10000 };
	static char *blocks[COUNT];
	for (int i = 0; i < COUNT; i++) {
		blocks[i] = (char *)malloc(1 + (size_t)i % 2000);
		if (!blocks[i])
			return 1;
		memset(blocks[i], i, 1 + (size_t)i % 2000);
	}
	for (int i = 0; i < COUNT; i++) {
		if (blocks[i][(size_t)i % 2000] != (char)i)
			return 1;
		free(blocks[i]);
	}
	/* Only the library's own malloc makes slabs. */
	struct cpuslab_counters counters;
	cpuslab_read_counters(&counters);
	if (counters.slabs_created == 0)
		return 1;
	printf("cpuslab %s serves malloc\n", cpuslab_version());
	return 0;
}
