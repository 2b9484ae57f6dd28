/* SPDX-License-Identifier: MIT */
/*
 * The floor: the cost of calling an allocator that does nothing.  A separate library, so that it is called as
 * every allocator is, through an address that the dynamic linker resolved.
 */
#include <stddef.h>

void *floor_allocate(size_t size);
void floor_release(void *object);

static char object[64];

void *floor_allocate(size_t size)
{
	(void)size;
	return object;
}

void floor_release(void *released)
{
	(void)released;
}
