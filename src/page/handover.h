/* SPDX-License-Identifier: MIT */
/*
 * handover: pages that lie in a word, whose they are who takes the word out.  For the page room's own files.
 *
 * The word holds all that there is to know of pages that are nobody's, so that whoever replaces it by one
 * exchange has them alone, whether or not they were taken and put back since the word was read.
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
 * With one thread it takes no exchange, which is half of what a block that comes and goes costs.  A signal
 * handler that came in between might take the same pages; it would as well find the page lock held.
 */
static inline bool handover_exchange(uint64_t *word, uint64_t old, uint64_t new)
{
	if (__libc_single_threaded) {
		__atomic_store_n(word, new, __ATOMIC_RELAXED);
		return true;
	}
	return __atomic_compare_exchange_n(word, &old, new, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/* One page's entry in the page map; `page` counts from the heap's start. */
static inline void handover_mark(uint32_t page, enum page_id id)
{
	__atomic_store_n(&page_front.map[page_front.heap_page + page], (uint16_t)id, __ATOMIC_RELEASE);
}

#endif
