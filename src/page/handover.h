/* SPDX-License-Identifier: MIT */
/*
 * handover: pages held in a word, owned by whoever takes the word out.  Private to the page room.
 *
 * The word holds everything there is to know about pages that are nobody's, so the thread that replaces it by
 * one compare-and-exchange owns them alone.  ABA is harmless: it does not matter whether the pages were taken
 * and put back since the word was read.
 */
#ifndef CPUSLAB_HANDOVER_H
#define CPUSLAB_HANDOVER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/single_threaded.h>

#include "page/page.h"

static inline uint64_t handover_look(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_RELAXED);
}

/*
 * Replaces `old` by `new`; false when another thread came first.  A process with one thread stores plainly,
 * since the exchange is half of the cost of a block that comes and goes.  A signal handler in between might
 * take the same pages; it could just as well find the page lock held.
 */
static inline bool handover_exchange(uint64_t *word, uint64_t old, uint64_t new)
{
	if (__libc_single_threaded) {
		__atomic_store_n(word, new, __ATOMIC_RELAXED);
		return true;
	}
	return __atomic_compare_exchange_n(word, &old, new, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/* Sets one page's entry in the page map; `page` counts from the heap's start. */
static inline void handover_mark(uint32_t page, enum page_id id)
{
	__atomic_store_n(&page_entries[page_front.heap_page + page], (uint16_t)id, __ATOMIC_RELEASE);
}

#endif
