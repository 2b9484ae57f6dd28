/* SPDX-License-Identifier: MIT */
/*
 * standby: large runs that were freed a moment ago and are expected back at once.  Private to the page room;
 * page_take_standby and page_put_standby are declared in page.h.
 *
 * A program that alternately allocates and frees a block of one length gets the same run each time.  After
 * EARNED such turns the run that it frees goes on standby: whole, into one of its vCPU's few words, marked as
 * in transit, and still counted as used.  The next allocation of exactly as many pages takes it from there,
 * or from another vCPU's word if its own has none.  That is one compare-and-exchange each way, without the
 * page lock, a clock or the bins.  After TURNS puts a free takes the usual path, where time passes for
 * everything that ages.
 *
 * This costs nobody memory: what is on standby becomes free runs as soon as the page room would take memory
 * from the system, at each tick, and in an ebb (run_recall_standby).  A length that nobody asked for since
 * the last tick must earn its place anew.
 *
 * Called without the page lock: page_take_standby, page_put_standby, page_standby_calls (see handover.h).
 * The others are called with it.
 *
 * Fork.  A run is marked before it enters its word, and after it has left it.  What another thread had in
 * between is lost to the child; its neighbours never mistake it for a free one.
 */
#ifndef CPUSLAB_STANDBY_H
#define CPUSLAB_STANDBY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Note that a large run was freed, and taken, the usual way. */
void standby_freed(uint32_t pages);
void standby_taken(uint32_t pages);
/* Takes any run off standby; returns its pages, 0 for none. */
uint32_t standby_recall(uint32_t *first);
/* Returns the pages on standby, and in *runs the number of their runs. */
size_t standby_pages(size_t *runs);
/*
 * At a tick, when none is left: lengths that nobody asked for since the last one must earn their places anew.
 */
void standby_forget(void);
/* The same for all lengths, at once. */
void standby_forget_all(void);
/* In a forked child, when everything not marked as used has become free. */
void standby_repair(void);
void standby_show(void (*show)(const char *name, uintptr_t value, size_t size));
#endif
