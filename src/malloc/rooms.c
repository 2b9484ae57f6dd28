/* SPDX-License-Identifier: MIT */
/*
 * malloc/rooms: the order of the rooms at the start and in a forked child.  Here alone stands what happens to
 * all of them (process/process.h says when); each knows only its own part.
 *
 * They start from the bottom up, and are repaired from the top down: what a room above gives back, since
 * nobody owns it, is free where the page room counts what is.
 */
#include <malloc.h>
#include <stdlib.h>
#include <sys/auxv.h>

#include "background/background.h"
#include "check/corruption.h"
#include "check/request.h"
#include "check/text.h"
#include "guard/guard.h"
#include "linked/linked.h"
#include "magazine/magazine.h"
#include "malloc/large.h"
#include "malloc/large_checks.h"
#include "malloc/leaks.h"
#include "malloc/own.h"
#include "malloc/replaced.h"
#include "malloc/size_class.h"
#include "malloc/slabinfo.h"
#include "options/options.h"
#include "os/os.h"
#include "page/page.h"
#include "process/process.h"
#include "profile/dump.h"
#include "profile/profile.h"
#include "report/root.h"
#include "vcpu/vcpu.h"

/* ---- start and end ------------------------------------------------------------------------------------- */

void rooms_prepare(void)
{
	options_init();
	if (options.hardened || options.guard || options.shuffle)
		os_random_begin(true);
	page_set_limits();
	vcpu_prepare();
	(void)os_reserving_costs();
}

/*
 * A kernel with larger pages, as some of arm64 have, would refuse every map and purge: better one line than
 * no memory for ever.  A kernel that does not tell its page size is assumed to have the usual one.
 */
static void check_pages(void)
{
	unsigned long bytes = os_auxiliary(AT_PAGESZ);

	if (bytes && bytes != PAGE_BYTES)
		corruption_abort(NULL, NULL, "the library needs a kernel with pages of 4 KiB");
}

bool rooms_begin(void)
{
	check_pages();
	return page_init() && vcpu_init();
}

/* Runs as a thread ends, maybe in a forked child that has not yet reached a slow path. */
static void left_alone(void)
{
	if (process_enter())
		magazine_left_alone();
}

static __attribute__((noinline, cold)) void begin_background(void)
{
	background_show(root_show);
	background_begin(&(struct background_work){vcpu_begin_apart, magazine_in_background, vcpu_self.rseq});
}

void rooms_open(void)
{
	page_open(!replaced_any());
	check_request_init();
	size_class_init();
	large_checks_init();
	guard_begin();
	guard_show(root_show);
	large_show(root_show);
	root_publish();
	vcpu_when_alone(left_alone);
	if (options.background)
		begin_background();
}

static void print_statistics(void)
{
	os_return_to_kept_error();
	if (options.stats_at_exit)
		own_malloc_stats();
	if (options.slabinfo_at_exit)
		slabinfo_write_error();
	if (options.leaks_at_exit)
		leaks_report();
}

void rooms_serve(void)
{
	size_class_open(!replaced_any());
	profile_begin();
	if (options.profile_at_exit)
		atexit(profile_dump_by_option);
	if (options.stats_at_exit || options.slabinfo_at_exit || options.leaks_at_exit) {
		os_keep_standard_error();
		atexit(print_statistics);
	}
}

/* ---- in a forked child --------------------------------------------------------------------------------- */

bool rooms_are_torn(void)
{
	return magazine_is_torn() || linked_is_torn() || profile_is_torn() || text_is_torn() ||
	       vcpu_is_torn() || page_is_torn();
}

void rooms_repair(bool all)
{
	profile_repair();
	text_repair();
	vcpu_repair();
	bool orphans = linked_repair(all);

	orphans |= magazine_repair(all);
	page_repair(orphans || all);
}

void rooms_begin_child(void)
{
	vcpu_begin_child();
	if (options.background) {
		background_begin_child();
		magazine_begin_child();
	}
	if (guard_is_on())
		guard_repair();
	if (large_is_checked())
		large_checks_repair();
}
