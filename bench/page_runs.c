/* SPDX-License-Identifier: MIT */
#include "page_runs.h"

#include "process/process.h"
#include "options/options.h"
#include "page/run.h"

void page_runs_start(bool demoting)
{
	process_enter();
	cpuslab_spin_init(&page_lock, demoting ? CPUSLAB_SPIN_DEMOTE : 0);
	/* Keeps what is freed: giving it back to the system is not part of the test. */
	options.dirty = SIZE_MAX;
	options.decay = 600000;
}

void *page_runs_allocate(size_t bytes)
{
	bool zeroed;

	return page_alloc(bytes >> PAGE_SHIFT, 1, PAGE_LARGE, &zeroed);
}

void page_runs_release(void *run, size_t bytes)
{
	page_free(run, bytes >> PAGE_SHIFT);
}
