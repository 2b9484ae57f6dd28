/* SPDX-License-Identifier: MIT */
/*
 * Included in front of the library's own sources: every atomic builtin becomes a call into relacy, which
 * simulates the C11 memory model and lets a load return any value that the model allows.
 */
#ifndef CPUSLAB_TESTS_RELACY_ATOMICS_H
#define CPUSLAB_TESTS_RELACY_ATOMICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
uintptr_t relacy_load(const volatile void *address, size_t size, int order);
void relacy_store(volatile void *address, size_t size, uintptr_t value, int order);
uintptr_t relacy_exchange(volatile void *address, size_t size, uintptr_t value, int order);
bool relacy_compare_exchange(volatile void *address, size_t size, void *expected, uintptr_t desired,
			     bool weak, int success, int failure);
uintptr_t relacy_fetch_add(volatile void *address, size_t size, uintptr_t value, int order);
uintptr_t relacy_fetch_or(volatile void *address, size_t size, uintptr_t value, int order);
uintptr_t relacy_fetch_and(volatile void *address, size_t size, uintptr_t value, int order);
uintptr_t relacy_fetch_xor(volatile void *address, size_t size, uintptr_t value, int order);
void relacy_pause(void);
#ifdef __cplusplus
}
#endif

#define RELACY_AS(p, value)               ((__typeof__(*(p)))(value))
#define __atomic_load_n(p, order)         RELACY_AS(p, relacy_load(p, sizeof *(p), order))
#define __atomic_store_n(p, value, order) relacy_store(p, sizeof *(p), (uintptr_t)(value), order)
#define __atomic_exchange_n(p, value, order)                                                                 \
	RELACY_AS(p, relacy_exchange(p, sizeof *(p), (uintptr_t)(value), order))
#define __atomic_compare_exchange_n(p, e, d, w, s, f)                                                        \
	relacy_compare_exchange(p, sizeof *(p), e, (uintptr_t)(d), w, s, f)
#define __atomic_fetch_add(p, value, order)                                                                  \
	RELACY_AS(p, relacy_fetch_add(p, sizeof *(p), (uintptr_t)(value), order))
#define __atomic_fetch_sub(p, value, order) __atomic_fetch_add(p, -(uintptr_t)(value), order)
#define __atomic_fetch_or(p, value, order)                                                                   \
	RELACY_AS(p, relacy_fetch_or(p, sizeof *(p), (uintptr_t)(value), order))
#define __atomic_fetch_and(p, value, order)                                                                  \
	RELACY_AS(p, relacy_fetch_and(p, sizeof *(p), (uintptr_t)(value), order))
#define __atomic_or_fetch(p, value, order)  RELACY_AS(p, __atomic_fetch_or(p, value, order) | (value))
#define __atomic_and_fetch(p, value, order) RELACY_AS(p, __atomic_fetch_and(p, value, order) & (value))
#define __atomic_xor_fetch(p, value, order)                                                                  \
	RELACY_AS(p, relacy_fetch_xor(p, sizeof *(p), (uintptr_t)(value), order) ^ (uintptr_t)(value))
#define __builtin_ia32_pause() relacy_pause()

#endif
