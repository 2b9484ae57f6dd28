/* SPDX-License-Identifier: MIT */
/*
 * The checks that CPUSLAB_DEBUG_LOCKS compiles into its user's calls: one table of the locks that are held,
 * with their owners.  The locks themselves have no room for an owner, and keep their size.
 *
 * A thread is identified by the address of a thread-local variable, not by its kernel id: the thread that
 * forks keeps its locks in the child, where it has another id.
 */
#include "arch/arch.h"
#include "lock/fork.h"
#include "lock/lock.h"

#include <pthread.h>
#include <stdlib.h>

enum { HELD_BITS = 12, HELD = 1 << HELD_BITS };

struct held {
	uintptr_t lock; /* 0: never used; 1: free again */
	const void *owner;
	uint32_t thread_id; /* for the report */
	uint32_t kind;
};

enum { NEVER_USED = 0, FREE_AGAIN = 1 };

static struct held held[HELD] ARCH_SPARSE;
static struct cpuslab_spinlock guard;
/* Once the table has overflowed, a missing entry proves nothing, and the checks end. */
static bool overflowed;

static __thread uint32_t spinlocks_held;
/*
 * The thread uses the table, or is being stopped.  What a signal handler locks and unlocks meanwhile goes
 * unchecked: it would wait for the guard that the interrupted thread holds.
 */
static __thread struct {
	bool at_table;
	fork_note fork; /* of the guard */
} own;

static const char *const kind_names[] = {
	[CPUSLAB_LOCK_SPIN] = "spinlock", [CPUSLAB_LOCK_PAGE] = "pagelock", [CPUSLAB_LOCK_MCS] = "mcs lock"};

/* ---- the report: no stdio, which allocates --------------------------------------------------------- */

struct text {
	char bytes[256];
	size_t length;
};

static void add(struct text *text, const char *string)
{
	while (*string && text->length < sizeof text->bytes)
		text->bytes[text->length++] = *string++;
}

static void add_number(struct text *text, uint64_t number, unsigned base)
{
	char digits[24];
	size_t first = sizeof digits - 1;

	digits[first] = 0;
	do
		digits[--first] = "0123456789abcdef"[number % base];
	while ((number /= base) != 0);
	add(text, digits + first);
}

__attribute__((noreturn, cold)) static void stop(const volatile void *lock, const char *kind,
						 const char *what, const struct held *holder)
{
	struct text text = {.length = 0};

	add(&text, "cpuslab: ");
	add(&text, kind);
	if (lock) {
		add(&text, " 0x");
		add_number(&text, (uintptr_t)lock, 16);
	}
	add(&text, ": thread ");
	add_number(&text, os_thread_id(), 10);
	add(&text, " ");
	add(&text, what);
	if (holder) {
		add(&text, " thread ");
		add_number(&text, holder->thread_id, 10);
	}
	add(&text, "\n");
	/* A handler of SIGABRT may lock, and so may other threads until it returns. */
	if (own.at_table)
		cpuslab_spin_unlock(&guard);
	own.at_table = true;
	os_write_error(text.bytes, text.length);
	abort();
}

/* ---- the table: only under the guard -------------------------------------------------------------- */

/*
 * The thread that held the guard is not in the child; at worst it left the entry of a lock that is dead
 * there.
 */
static void free_guard_in_child(void)
{
	if (fork_is_to_reset(&own.fork))
		cpuslab_spin_reset(&guard);
}

static void note_fork(void)
{
	fork_begins(&own.fork);
}

static void end_fork(void)
{
	fork_is_over(&own.fork);
}

/* False in a handler that must not touch the table. */
static bool begin(void) CPUSLAB_TRY_ACQUIRE(true, guard) CPUSLAB_IS_A_LOCK
{
	static bool prepared;

	if (own.at_table)
		return false;
	own.at_table = true;
	/* The flag is set before the guard is requested, as seen by this thread's own handlers. */
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	/* Only then does it count for others: one that has the guard may be forked before this one goes on.
	 */
	if (!__atomic_load_n(&prepared, __ATOMIC_RELAXED) &&
	    pthread_atfork(note_fork, end_fork, free_guard_in_child) == 0)
		__atomic_store_n(&prepared, true, __ATOMIC_RELAXED);
	if (fork_has_left_it(&own.fork))
		cpuslab_spin_reset(&guard);
	cpuslab_spin_lock(&guard);
	return true;
}

static void end(void) CPUSLAB_RELEASE(guard) CPUSLAB_IS_A_LOCK
{
	cpuslab_spin_unlock(&guard);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	own.at_table = false;
}

/* A lock's entry, or the place for one; NULL when there is neither. */
static struct held *entry_of(const volatile void *lock)
{
	size_t start = (size_t)((uint64_t)(uintptr_t)lock * 0x9e3779b97f4a7c15u >> (64 - HELD_BITS));
	struct held *place = NULL;

	for (size_t i = 0; i < HELD; i++) {
		struct held *entry = &held[(start + i) % HELD];

		if (entry->lock == (uintptr_t)lock)
			return entry;
		if (entry->lock <= FREE_AGAIN && !place)
			place = entry;
		if (entry->lock == NEVER_USED)
			break;
	}
	return place;
}

static bool is_held(const struct held *entry, const volatile void *lock)
{
	return entry && entry->lock == (uintptr_t)lock;
}

static void remove_entry(struct held *entry)
{
	entry->lock = FREE_AGAIN;
	/* Free entries that precede a never-used one become never used too: this keeps searches short. */
	for (size_t i = (size_t)(entry - held);
	     held[(i + 1) % HELD].lock == NEVER_USED && held[i].lock == FREE_AGAIN; i = (i + HELD - 1) % HELD)
		held[i].lock = NEVER_USED;
}

static void forget(struct held *entry)
{
	if (entry->owner == &spinlocks_held && entry->kind == CPUSLAB_LOCK_SPIN)
		spinlocks_held--;
	remove_entry(entry);
}

static bool is_locked(const volatile void *lock, uint32_t kind)
{
	if (kind == CPUSLAB_LOCK_SPIN)
		return cpuslab_spin_is_locked((const struct cpuslab_spinlock *)lock);
	if (kind == CPUSLAB_LOCK_PAGE)
		return cpuslab_pagelock_is_locked((const struct cpuslab_pagelock *)lock);
	return cpuslab_mcs_is_locked((const struct cpuslab_mcs *)lock);
}

/* ---- the hooks ------------------------------------------------------------------------------------- */

void cpuslab_debug_lock_wanted(const volatile void *lock, enum cpuslab_lock_kind kind)
{
	if (!own.at_table && kind != CPUSLAB_LOCK_SPIN && spinlocks_held > 0)
		stop(lock, kind_names[kind], "may sleep for this lock while it holds a spinlock", NULL);
	if (!begin())
		return;
	struct held *entry = entry_of(lock);
	if (is_held(entry, lock) && entry->owner == &spinlocks_held) {
		if (is_locked(lock, entry->kind))
			stop(lock, kind_names[kind], "takes a lock that it holds already", NULL);
		/* It held a lock that was freed with its memory; this is the next lock there. */
		forget(entry);
	}
	end();
}

void cpuslab_debug_lock_taken(const volatile void *lock, enum cpuslab_lock_kind kind)
{
	if (!begin())
		return;
	struct held *entry = entry_of(lock);
	if (!entry)
		overflowed = true;
	else
		*entry = (struct held){(uintptr_t)lock, &spinlocks_held, os_thread_id(), kind};
	if (kind == CPUSLAB_LOCK_SPIN)
		spinlocks_held++;
	end();
}

void cpuslab_debug_lock_released(const volatile void *lock, enum cpuslab_lock_kind kind)
{
	if (!begin())
		return;
	struct held *entry = entry_of(lock);
	if (is_held(entry, lock)) {
		if (entry->owner != &spinlocks_held)
			stop(lock, kind_names[kind], "unlocks a lock held by", entry);
		remove_entry(entry);
	} else if (!overflowed) {
		stop(lock, kind_names[kind], "unlocks a lock that nobody holds", NULL);
	}
	if (kind == CPUSLAB_LOCK_SPIN)
		spinlocks_held--;
	end();
}

void cpuslab_debug_lock_held(const volatile void *lock)
{
	if (!begin())
		return;
	struct held *entry = entry_of(lock);
	if (is_held(entry, lock) ? entry->owner != &spinlocks_held : !overflowed)
		stop(lock, "lock",
		     is_held(entry, lock) ? "needs a lock that is held by" : "needs a lock that nobody holds",
		     is_held(entry, lock) ? entry : NULL);
	end();
}

void cpuslab_debug_lock_forget(const volatile void *lock)
{
	if (!begin())
		return;
	struct held *entry = entry_of(lock);
	if (is_held(entry, lock))
		forget(entry);
	end();
}

void cpuslab_debug_may_sleep(const char *what)
{
	if (!own.at_table && spinlocks_held > 0)
		stop(NULL, what, "may sleep while it holds a spinlock", NULL);
}
