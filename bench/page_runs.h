/* SPDX-License-Identifier: MIT */
/*
 * page_runs: the allocator's own page-run layer, without the rooms above it, for `cpuslab bench pft`.
 *
 * libcpuslab-pages.so contains the whole allocator and exports only these.  The lock over the runs can be
 * told to give its cache line away on unlock, as seed 002 does with a non-temporal store; code and data are
 * the same either way, so that only the unlock differs.
 */
#ifndef CPUSLAB_BENCH_PAGE_RUNS_H
#define CPUSLAB_BENCH_PAGE_RUNS_H

#include <stdbool.h>
#include <stddef.h>

#define PAGE_RUNS_EXPORT __attribute__((visibility("default")))

/* Must be called once, before any other, and before there are threads. */
typedef void page_runs_start_function(bool demoting);
PAGE_RUNS_EXPORT page_runs_start_function page_runs_start;

/* Returns a run of `bytes`, a multiple of the system's page size; NULL when there is no more. */
typedef void *page_runs_allocate_function(size_t bytes);
PAGE_RUNS_EXPORT page_runs_allocate_function page_runs_allocate;

/* `bytes` must be as requested. */
typedef void page_runs_release_function(void *run, size_t bytes);
PAGE_RUNS_EXPORT page_runs_release_function page_runs_release;

#endif
