/* SPDX-License-Identifier: MIT */
/*
 * name: members of the archive that hold one function of the family each, under its public name and not weak:
 * compiled once for each NAME, for the archive alone.
 *
 * Where the archive comes before libc.a, most linkers take malloc from malloc.c, which they meet first, weak
 * or not, and leave these out.  mold prefers whatever is not weak, and would take libc.a's malloc; so it
 * takes these, each of which is a jump.
 */
#include <stddef.h>

#include "malloc/own.h"

#define AGAIN(result, name, ...)                                                                             \
	__attribute__((visibility("default"))) result name(__VA_ARGS__);                                     \
	__attribute__((visibility("default"))) result name(__VA_ARGS__)

#if defined(NAME_malloc)
AGAIN(void *, malloc, size_t size)
{
	return own_malloc(size);
}
#elif defined(NAME_free)
AGAIN(void, free, void *object)
{
	own_free(object);
}
#elif defined(NAME_calloc)
AGAIN(void *, calloc, size_t count, size_t size)
{
	return own_calloc(count, size);
}
#elif defined(NAME_realloc)
AGAIN(void *, realloc, void *object, size_t size)
{
	return own_realloc(object, size);
}
#endif
