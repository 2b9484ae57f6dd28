/* SPDX-License-Identifier: MIT */
#include "malloc/process.h"

#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/single_threaded.h>

#include "check/corruption.h"
#include "check/request.h"
#include "guard/guard.h"
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
#include "profile/dump.h"
#include "report/root.h"
#include "vcpu/vcpu.h"

/*
 * The values of the word: 0 before the start and in a child just forked, SETTLING while one thread starts
 * or repairs the library, ALIVE from then on.
 */
enum { ALIVE = 1, SETTLING = 2 };

enum { FIRST_PRIORITY = 101 };     /* of the constructors that are not the C library's own */
enum { SETTLING_NAP = 50 * 1000 }; /* nanoseconds: a start takes twice as long */

static uint32_t before_start;
static uint32_t starter; /* the multithreaded process in which `before_start` became SETTLING */
static uint32_t *alive_word = &before_start;
const uint32_t *process_alive = &before_start;
static bool started;
static __thread bool asks;   /* is registering an atfork handler, which may allocate */
static __thread bool starts; /* is starting the library */

static void in_child(void)
{
	__atomic_store_n(alive_word, 0, __ATOMIC_RELEASE);
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

/* Runs as a thread ends, maybe in a forked child that has not yet reached a slow path. */
static void left_alone(void)
{
	if (process_enter())
		magazine_left_alone();
}

/*
 * Called before other threads may use the library: one of them could fork, and its child would not be told.
 * A child forked in the middle finds an unfinished start.
 */
static __attribute__((noinline, cold)) void ask_for_handler(void)
{
	asks = true;
	pthread_atfork(NULL, NULL, in_child);
	asks = false;
}

/*
 * Reads the options, and makes those system calls of the start that libc's own malloc would not make:
 * programs that put a sandbox around themselves may be killed for them afterwards.  So it comes before
 * `main`, or with the first allocation where that is earlier.
 */
__attribute__((constructor(FIRST_PRIORITY))) static void prepare(void)
{
	static bool prepared;

	if (prepared)
		return;
	prepared = true;
	options_init();
	if (options.hardened || options.guard || options.shuffle)
		os_random_begin(true);
	vcpu_prepare();
	(void)os_reserving_costs();
}

/* False, with everything as before, when the system has no memory. */
static bool start(void)
{
	prepare();
	check_pages();
	if (!page_init() || !vcpu_init())
		return false;
	page_open(!replaced_any());
	check_request_init();
	size_class_init();
	large_checks_init();
	guard_begin();
	guard_show(root_show);
	large_show(root_show);
	root_publish();
	vcpu_when_alone(left_alone);

	/* A word that forked children find zeroed: a whole page, because the kernel wipes by pages. */
	uint32_t *word = os_map(NULL, PAGE_BYTES);

	if (word && os_wipe_on_fork(word, PAGE_BYTES) != 0) {
		/* An old kernel or a sandbox: a handler does as well, except after a bare _Fork. */
		os_unmap(word, PAGE_BYTES);
		word = NULL;
	}
	/* From here on other threads may use the library, and end: they need nothing of what follows. */
	started = true;
	if (word) {
		__atomic_store_n(word, ALIVE, __ATOMIC_RELEASE);
		alive_word = word;
		__atomic_store_n(&process_alive, word, __ATOMIC_RELEASE);
	} else {
		ask_for_handler();
	}
	__atomic_store_n(&before_start, ALIVE, __ATOMIC_RELEASE);
	size_class_open(!replaced_any());
	profile_begin();
	if (options.profile_at_exit)
		atexit(profile_dump_by_option);
	if (options.stats_at_exit || options.slabinfo_at_exit || options.leaks_at_exit) {
		os_keep_standard_error();
		atexit(print_statistics);
	}
	return true;
}

/* Starts or repairs the library, in the one thread that has made the word SETTLING. */
static bool settle(uint32_t *word)
{
	if (started) {
		guard_repair();
		magazine_repair();
		large_checks_repair();
		__atomic_store_n(word, ALIVE, __ATOMIC_RELEASE);
		return true;
	}
	starts = true;
	bool done = start();

	starts = false;
	if (done)
		return true;
	__atomic_store_n(word, 0, __ATOMIC_RELEASE);
	return false;
}

/*
 * Called before a thread makes the word SETTLING: another thread may fork then, and nothing in the child
 * would ever make it ALIVE.  Only before_start is not cleared there by the kernel.
 */
static void note_starter(const uint32_t *word)
{
	if (word == &before_start && !__libc_single_threaded && !__atomic_load_n(word, __ATOMIC_RELAXED))
		__atomic_store_n(&starter, os_process_id(), __ATOMIC_RELAXED);
}

/*
 * A half-finished start cannot be begun anew.  A vfork child also has its own id in its parent's memory,
 * but may not call anything that starts the library.
 */
static void stop_if_left(const uint32_t *word)
{
	uint32_t process = __atomic_load_n(&starter, __ATOMIC_RELAXED);

	if (word == &before_start && process && process != os_process_id())
		corruption_abort(NULL, NULL, "forked while another thread started the library");
}

__attribute__((noinline, cold)) bool process_settle(void)
{
	for (;;) {
		uint32_t *word = (uint32_t *)process_alive;
		uint32_t found = 0;

		note_starter(word);
		if (__atomic_compare_exchange_n(word, &found, SETTLING, false, __ATOMIC_ACQ_REL,
						__ATOMIC_ACQUIRE))
			return settle(word);
		if (found == ALIVE || asks)
			return true;
		/* What a start calls of libc's does not allocate, unless another library stands before it. */
		if (starts)
			return false;
		stop_if_left(word);
		/* Another thread is at it, which a forked child may have by its first slow path. */
		os_nap(SETTLING_NAP);
	}
}
