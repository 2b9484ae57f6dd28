/* SPDX-License-Identifier: MIT */
/* operators: what the C and the C++ part of operator new share. */
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
 * After a failed allocation: calls the new-handler and tries again, until there is memory or no handler.
 * Without a handler: throws bad_alloc, or returns NULL where `nothrow`.  Alignment 0: malloc's own.  Where
 * no C++ runtime can be found, not even one that was loaded later, it stops the process instead of throwing.
 */
void *operators_new_again(size_t size, size_t alignment, bool nothrow);

/* The same for the nothrow forms: what the handler throws becomes NULL. */
void *operators_new_nothrow(size_t size, size_t alignment) NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif
