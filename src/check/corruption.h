/* SPDX-License-Identifier: MIT */
/*
 * check/corruption: how the library stops a program that has broken its heap.
 *
 * One line on standard error, by write(2) alone, that names the cache, the pointer and what is wrong; then
 * abort().  Called with or without locks held, from any room; allocates nothing.
 */
#ifndef CPUSLAB_CORRUPTION_H
#define CPUSLAB_CORRUPTION_H

/* `cache` is NULL where the memory belongs to none. */
_Noreturn void corruption_abort(const char *cache, const void *pointer, const char *what);

#endif
