/* SPDX-License-Identifier: MIT */
/*
 * variants: the linked engine with other ways to commit, side by side in one library
 * (libcpuslab-variants.so), to measure what each way costs (seeds 000 and 001).
 *
 * All of it is the library's own code: its rooms, and its engine's slow paths, compiled once for each way
 * with another front (see src/linked/front.h).  So slabs, links, checks and frees to other slabs are the
 * same; only what a vCPU keeps, and how it changes, differs:
 *
 *   rseq        one word, changed by a restartable sequence: the library's own front
 *   cmpxchg16b  the word and a transaction id, by `lock cmpxchg16b`: correct wherever the thread has migrated
 *   lock        the same two, compared and stored under a lock of the vCPU: seed 000's emulation
 *   slot        one word, by the same instructions as rseq, in a slot that belongs to the thread
 *   guard       a list that ends in 0 and a field that names its slab, both accessed under a guard that keeps
 *               others off the vCPU: before seed 001
 *
 * and, for comparison, object caches of both engines and malloc as programs call them.
 */
#ifndef CPUSLAB_BENCH_VARIANTS_H
#define CPUSLAB_BENCH_VARIANTS_H

#include <stdbool.h>
#include <stddef.h>

struct variant {
	const char *name;
	void *(*create)(size_t size); /* creates a cache; NULL: no memory */
	void *(*allocate)(void *cache);
	void (*release)(void *cache, void *object);
	bool (*destroy)(void *cache); /* false if objects are left */
};

/* The only function that the library exports.  Starts the library. */
typedef const struct variant *variants_function(unsigned *count);
__attribute__((visibility("default"))) variants_function variants_list;

#define VARIANT(name, everywhere)                                                                            \
	extern __attribute__((visibility("hidden"))) const struct variant variant_##name;
#include "variants.def"
#undef VARIANT

#endif
