/* SPDX-License-Identifier: MIT */
/*
 * standby: large runs that were freed a moment ago and are expected back at once.  For the page room's own
 * files; page_take_standby and page_put_standby are in page.h.
 *
 * A program that allocates and frees a block of one length by turns gets the same run each time.  When it has
 * done so EARNED times, the run that it frees stands by: in one of its vCPU's few words, whole, with the
 * marks of a run in transit, and still among the used ones of the page room's counts.  The next allocation of
 * just so many pages takes it from there, or from another vCPU's word where its own has none.  That is a
 * compare-and-exchange each way, without the page lock, a clock or the bins.  Every TURNS times the free goes
 * the usual way, where time passes for all that ages.
 *
 * Nobody loses by what stands by: it is free as any other run as soon as the page room would take memory from
 * the system, at each tick, and in an ebb (run_recall_standby).  A length has to earn its place anew
 * when a tick finds that nobody asked for it.
 *
 * Without a lock: page_take_standby, page_put_standby, page_standby_calls (see handover.h).  The others with
 * the page lock.
 *
 * Fork.  A run is marked before it comes into its word, and after it has left it.  What another thread had in
 * between is the child's loss; its neighbours never mistake it for a free one.
 */
#ifndef CPUSLAB_STANDBY_H
#define CPUSLAB_STANDBY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A large run was freed the usual way, and one was taken. */
void standby_freed(uint32_t pages);
void standby_taken(uint32_t pages);
/* Takes out a run that stands by; returns its pages, 0 for none. */
uint32_t standby_recall(uint32_t *first);
/* How many pages stand by, and in how many runs. */
size_t standby_pages(size_t *runs);
/* As time passes, when none is left: which lengths nobody asked for has to earn its place anew. */
void standby_forget(void);
/* In a forked child, when all that is not marked as used has become free. */
void standby_repair(void);
void standby_show(void (*show)(const char *name, uintptr_t value, size_t size));
#endif
