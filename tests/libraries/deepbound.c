/* SPDX-License-Identifier: MIT */
/* deepbound: a plugin that allocates in its constructor, and shows which malloc it got. */
#include "deepbound.h"

#include <stdlib.h>

extern struct deepbound deepbound;
struct deepbound deepbound = {malloc, free, NULL};

__attribute__((constructor)) static void allocate(void)
{
	deepbound.early = malloc(100);
}
