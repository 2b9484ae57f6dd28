/* SPDX-License-Identifier: MIT */
/* operators: what the C and the C++ halves of operator new share. */
#ifndef CPUSLAB_OPERATORS_H
#define CPUSLAB_OPERATORS_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
#define NOEXCEPT noexcept
extern "C" {
#else
#define NOEXCEPT
#endif

/*
 * After a failed allocation: calls the new-handler and retries until there is memory or no handler.
 * Without a handler it throws bad_alloc, or returns NULL if `nothrow`.  Alignment 0 is malloc's own.  Where
 * no C++ runtime can be found, not even one loaded later, it aborts instead of throwing.
 */
void *operators_new_again(size_t size, size_t alignment, bool nothrow);

/* The same for the nothrow forms: returns NULL when the handler throws. */
void *operators_new_nothrow(size_t size, size_t alignment) NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif
