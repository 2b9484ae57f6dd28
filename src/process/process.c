/* SPDX-License-Identifier: MIT */
#include "process/process.h"

#include <pthread.h>
#include <sys/single_threaded.h>

#include "check/corruption.h"
#include "os/os.h"

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
 * Programs that put a sandbox around themselves may be killed for such calls afterwards.  So it comes before
 * `main`, or with the first allocation where that is earlier.
 */
__attribute__((constructor(FIRST_PRIORITY))) static void prepare(void)
{
	static bool prepared;

	if (prepared)
		return;
	prepared = true;
	rooms_prepare();
}

/* A word that forked children find zeroed: a whole page, because the kernel wipes by pages.  NULL for none.
 */
static uint32_t *make_word(void)
{
	uint32_t *word = os_map(NULL, OS_PAGE_BYTES);

	if (word && os_wipe_on_fork(word, OS_PAGE_BYTES) != 0) {
		/* An old kernel or a sandbox: a handler does as well, except after a bare _Fork. */
		os_unmap(word, OS_PAGE_BYTES);
		word = NULL;
	}
	return word;
}

/* False, with everything as before, when the system has no memory. */
static bool start(void)
{
	prepare();
	if (!rooms_begin())
		return false;
	rooms_open();

	uint32_t *word = make_word();

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
	rooms_serve();
	return true;
}

/* In a forked child.  Most parents left nothing to repair: then nothing is written. */
static void repair(void)
{
	/*
	 * Set in a child forked meanwhile by a thread that this child had already: it begins all of it anew.
	 */
	static bool unfinished;
	bool all = unfinished;

	rooms_begin_child();
	if (!all && !rooms_are_torn())
		return;
	__atomic_store_n(&unfinished, true, __ATOMIC_RELEASE);
	rooms_repair(all);
	__atomic_store_n(&unfinished, false, __ATOMIC_RELEASE);
}

/* Starts or repairs the library, in the one thread that has made the word SETTLING. */
static bool settle(uint32_t *word)
{
	if (started) {
		repair();
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
