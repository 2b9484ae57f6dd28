/* SPDX-License-Identifier: MIT */
/*
 * pagelock, the part that is not inline: 256 hashed wait queues.
 *
 * A byte has no room for a queue, so its waiters stand in one of 256 queues, chosen by a hash of the byte's
 * address, each behind a guard.  There are three kinds of waiters: `patient` ones want the lock, and may
 * lose it to passers-by a few times; `owed` ones have lost it often enough; `watchers` want to know of a
 * change without taking the lock.
 *
 * The rules, each with the race that it closes:
 *
 * 1. The WAITERS bit is set and cleared only under the guard, by or on behalf of a thread that waits for
 *    that very byte.  A waiter sets it in the same compare-and-exchange that finds LOCKED set.  So an
 *    unlock either comes later in the byte's history, sees the bit, and comes for the waiter; or it comes
 *    before, and the waiter sees the lock free.  A waiter may leave the bit alone only where rule 4 makes
 *    another thread come for it.
 * 2. A waker arrives with an address.  The lock may have been taken, unlocked and freed since the waker's
 *    unlock, so the waker must not touch the byte, not even to clear a stale WAITERS bit, unless it finds
 *    a waiter for that address in the queue: a waiter keeps the memory, and cannot leave the queue while
 *    the guard is held.
 * 3. A byte with WAITERS set is taken only under the guard; the inline paths leave it alone.  So between
 *    an unlock and the arrival of its waker no thread can slip in ahead of an owed waiter, and a watcher for
 *    an unlock is served by the thread that takes the lock, if the waker was too slow.  A thread that finds
 *    the lock free and a waiter owed hands it over first: no waiter depends on a waker that lost its CPU.
 * 4. A waker takes a patient waiter out of the queue, and the waiter competes again.  Until it comes back to
 *    the guard it is among the `awake`.  While enough are awake for a byte, and at least one is, no other is
 *    woken for it: WAITERS is clear (unless a waiter is owed the lock, or watches), though others are queued,
 *    or queue meanwhile, so that passers-by lock and unlock at full speed.  The debt is the awake waiters':
 *    under the guard each of them takes the lock, queues again in front or gives up, is awake no more, and
 *    in all cases sets WAITERS if others are queued.
 * 5. A waker does whatever it does to the byte before it tells the waiter; after that the lock and the
 *    waiter's record may be gone.  A futex_wake on the record's address is harmless by then: every sleeper
 *    checks its own state again.
 *
 * What an unlock may wait for, since callers that must not wait unlock bytes as well (a slab's, by
 * slab_try_alloc).  Never for a thread that it has interrupted as a signal handler: the thread that holds
 * the guard keeps WAITERS from being set (rule 1), and the handler took its byte without WAITERS (rule 3),
 * so its unlock does not come here.  It does wait for another thread that holds the guard: that one makes
 * no system call meanwhile, waits for nobody, and has at most to walk the queue.
 *
 * A forked child has none of the waiters: the queues are memory that the kernel wipes on fork.  A WAITERS
 * bit that was copied along is stale there, costs its lock one visit to the queue, and is cleared by the
 * next thread that takes the lock (rule 3 sends it here).
 */
#include "arch/arch.h"
#include "lock/fork.h"
#include "lock/lock.h"

#include <errno.h>
#include <pthread.h>

/* Elsewhere than on x86-64, the largest page size of any kernel: the queues' size must not depend on it. */
#ifdef __x86_64__
enum { QUEUES = 256, QUEUE_PAGE_BYTES = OS_PAGE_BYTES };
#else
enum { QUEUES = 256, QUEUE_PAGE_BYTES = 65536 };
#endif

/*
 * A newcomer's looks: fewer than the spinlock's, whose owner pays for a waiter that sleeps.  With eight
 * threads on two CPUs, as many looks as there left two of them taking the lock from each other (`bench
 * locks`, 50 in, 50 out).  Where others wait already, few looks far apart: some microseconds, see
 * spin_for_lock.  Where the lock is free most of the time the first look comes soon all the same, for then
 * it is free again.
 */
enum { LOOKS = LOCK_LOOKS * 2 / 3, LOOKS_IN_A_CROWD = LOCK_LOOKS / 6, PAUSES_IF_MOSTLY_FREE = 8 };

/*
 * Rule 4: this many are enough for a byte whose lock is mostly free, else one is; see mostly_free.  With one,
 * a CPU was idle while that waiter stood behind the lock's owner, on the CPU that it last had; the second
 * is as likely as not to have had another.
 */
enum { AWAKE_MOST = 2 };

enum waiter_state {
	WAITING, /* queued, awake */
	PARKED,  /* queued, asleep or about to sleep on `state` */
	WOKEN,   /* out of the queue, without the lock */
	GRANTED, /* out of the queue, with the lock */
};

struct waiter {
	struct waiter *next, *previous;
	uint8_t *byte;
	uint32_t state;
	uint8_t mask, seen; /* the bits that a watcher watches, and their values when it came */
	bool queued;
};

struct waiters {
	struct waiter *first, *last;
};

struct queue {
	struct cpuslab_spinlock guard;
	/* Both change without the guard, and are no more than hints. */
	uint16_t crowd;      /* threads waiting for a lock, asleep or not */
	uint16_t found_free; /* how often newcomers lately found it free: see mostly_free */
	struct waiters owed, patient, watchers;
	struct waiter *awake; /* linked through `next` */
} __attribute__((aligned(64)));
_Static_assert(sizeof(struct queue) == 64, "a queue is one cache line");

/* Whole pages, whatever their size, so that wiping them on fork wipes nothing else. */
static union {
	struct queue of[QUEUES];
	char page[QUEUE_PAGE_BYTES];
} queues __attribute__((aligned(QUEUE_PAGE_BYTES))) ARCH_SPARSE;

static unsigned unfairness = CPUSLAB_PAGELOCK_UNFAIRNESS;

/* Where the kernel cannot wipe the queues.  One variable: each costs a relocation. */
static __thread struct {
	fork_note fork;
	bool prepares; /* asks libc for the handlers */
} own;

static struct queue *queue_of(const uint8_t *byte)
{
	if (__builtin_expect(fork_has_left_it(&own.fork), 0))
		__builtin_memset(&queues, 0, sizeof queues);
	return &queues.of[((uint64_t)(uintptr_t)byte * 0x9e3779b97f4a7c15u) >> 56];
}

struct cpuslab_spinlock *pagelock_guard(const uint8_t *byte)
{
	return &queue_of(byte)->guard;
}

/* ---- what is worth it ------------------------------------------------------------------------------ */

/*
 * A lock that others wait for is either held nearly always or mostly free.  If it is held nearly always,
 * one owner left alone gets more done than two CPUs that take it from each other.  If it is mostly free, no
 * CPU should lack a running waiter, for waiters do most of their work outside the lock.  The two are told
 * apart by newcomers that met an owner and took the lock later: did they take it at the first look after
 * that one?  Three in four and more do where the lock is mostly free, one in four where it is not (`bench
 * locks`, 64 threads).  A newcomer that found it taken to the last says nothing: its owner may have lost
 * its CPU.
 */
enum { FOUND_FREE_MOST = 64, FOUND_FREE_OFTEN = 32, FOUND_TAKEN_WEIGHS = 2, VISITS_A_NOTE = 8 };

static bool mostly_free(const struct queue *queue)
{
	return __atomic_load_n(&queue->found_free, __ATOMIC_RELAXED) >= FOUND_FREE_OFTEN;
}

/* Notes after how many looks a newcomer in a crowd took the lock.  An overwritten note is lost. */
static void note_look(struct queue *queue, unsigned look)
{
	static __thread uint8_t visits;

	/* Not each time: the queue's line would bounce along with the lock's. */
	if (look == 0 || visits++ % VISITS_A_NOTE != 0)
		return;
	unsigned before = __atomic_load_n(&queue->found_free, __ATOMIC_RELAXED), after;
	if (look == 1)
		after = before < FOUND_FREE_MOST ? before + 1 : before;
	else
		after = before > FOUND_TAKEN_WEIGHS ? before - FOUND_TAKEN_WEIGHS : 0;
	if (after != before)
		__atomic_store_n(&queue->found_free, (uint16_t)after, __ATOMIC_RELAXED);
}

/* ---- lists: only under the guard ------------------------------------------------------------------- */

static void append(struct waiters *list, struct waiter *waiter)
{
	waiter->next = NULL;
	waiter->previous = list->last;
	*(list->last ? &list->last->next : &list->first) = waiter;
	list->last = waiter;
	waiter->queued = true;
}

static void prepend(struct waiters *list, struct waiter *waiter)
{
	waiter->previous = NULL;
	waiter->next = list->first;
	*(list->first ? &list->first->previous : &list->last) = waiter;
	list->first = waiter;
	waiter->queued = true;
}

static void take_out(struct waiters *list, struct waiter *waiter)
{
	*(waiter->previous ? &waiter->previous->next : &list->first) = waiter->next;
	*(waiter->next ? &waiter->next->previous : &list->last) = waiter->previous;
	waiter->queued = false;
}

static struct waiter *first_for(const struct waiters *list, const uint8_t *byte)
{
	struct waiter *waiter = list->first;

	while (waiter && waiter->byte != byte)
		waiter = waiter->next;
	return waiter;
}

static bool anyone_for(const struct queue *queue, const uint8_t *byte)
{
	return first_for(&queue->owed, byte) || first_for(&queue->patient, byte) ||
	       first_for(&queue->watchers, byte);
}

static bool enough_awake_for(const struct queue *queue, const uint8_t *byte)
{
	unsigned count = 0;

	for (const struct waiter *waiter = queue->awake; waiter; waiter = waiter->next)
		count += waiter->byte == byte;
	return count >= (mostly_free(queue) ? AWAKE_MOST : 1);
}

/* Removes a waiter that has come back: rule 4. */
static void no_more_awake(struct queue *queue, struct waiter *waiter)
{
	struct waiter **link = &queue->awake;

	while (*link != waiter)
		link = &(*link)->next;
	*link = waiter->next;
}

/* Returns whether WAITERS must be set, so that an unlock comes for those who are queued. */
static bool needs_waker(const struct queue *queue, const uint8_t *byte)
{
	return first_for(&queue->owed, byte) || first_for(&queue->watchers, byte) ||
	       (!enough_awake_for(queue, byte) && first_for(&queue->patient, byte));
}

/* ---- waking ---------------------------------------------------------------------------------------- */

/* Waiters taken out under the guard, to be told after its release. */
struct told {
	struct waiter *watchers; /* linked through `next` */
	struct waiter *awake;
	struct waiter *granted;
};

static void tell(struct waiter *waiter, uint32_t state)
{
	/* Release: GRANTED passes on everything that the lock's last owner did. */
	if (__atomic_exchange_n(&waiter->state, state, __ATOMIC_ACQ_REL) == PARKED)
		os_futex_wake(&waiter->state, 1);
}

static void tell_all(struct told *told)
{
	if (told->granted)
		tell(told->granted, GRANTED);
	if (told->awake)
		tell(told->awake, WOKEN);
	for (struct waiter *waiter = told->watchers, *next; waiter; waiter = next) {
		next = waiter->next;
		tell(waiter, WOKEN);
	}
}

/* Takes out the watchers whose bits have changed. */
static void take_out_watchers(struct queue *queue, const uint8_t *byte, uint8_t value, struct told *told)
{
	for (struct waiter *watcher = queue->watchers.first, *next; watcher; watcher = next) {
		next = watcher->next;
		if (watcher->byte == byte && ((value ^ watcher->seen) & watcher->mask)) {
			take_out(&queue->watchers, watcher);
			watcher->next = told->watchers;
			told->watchers = watcher;
		}
	}
}

/* Takes out the first patient waiter to compete again, unless enough others do already: rule 4. */
static void wake_patient(struct queue *queue, const uint8_t *byte, struct told *told)
{
	struct waiter *patient = first_for(&queue->patient, byte);

	if (!patient || enough_awake_for(queue, byte))
		return;
	take_out(&queue->patient, patient);
	patient->next = queue->awake;
	queue->awake = patient;
	told->awake = patient;
}

/*
 * The value to store in a free byte to take it, with WAITERS as it should be, so that the unlock comes for
 * all that are left.  Waiters for it to become locked are not: they are taken out.
 */
static uint8_t locked_value(struct queue *queue, const uint8_t *byte, uint8_t value, struct told *told)
{
	value |= CPUSLAB_PAGELOCK_LOCKED;
	take_out_watchers(queue, byte, value, told);
	return needs_waker(queue, byte) ? value | CPUSLAB_PAGELOCK_WAITERS
					: value & (uint8_t)~CPUSLAB_PAGELOCK_WAITERS;
}

/*
 * For a byte seen free, by a thread that keeps its memory (rule 2): serves the watchers, and hands the lock
 * to the first waiter owed it.  True if it was handed over.
 */
static bool serve_free_lock(struct queue *queue, uint8_t *byte, uint8_t value, struct told *told)
{
	take_out_watchers(queue, byte, value, told);
	struct waiter *owed = first_for(&queue->owed, byte);
	if (!owed)
		return false;
	take_out(&queue->owed, owed);
	/*
	 * Fails only if a user flag changes, or a thread slips in where WAITERS was cleared for a woken
	 * waiter.
	 */
	do {
		if (value & CPUSLAB_PAGELOCK_LOCKED) {
			prepend(&queue->owed, owed);
			return false;
		}
	} while (!__atomic_compare_exchange_n(byte, &value, locked_value(queue, byte, value, told), true,
					      __ATOMIC_ACQUIRE, __ATOMIC_RELAXED));
	told->granted = owed;
	return true;
}

/* Serves the watchers of a byte whose flags may have changed. */
static void serve_watchers(struct queue *queue, uint8_t *byte, struct told *told)
{
	take_out_watchers(queue, byte, __atomic_load_n(byte, __ATOMIC_RELAXED), told);
	/* Rule 2: those just taken out have not been told yet, so the memory still exists. */
	if (told->watchers && !needs_waker(queue, byte))
		__atomic_fetch_and(byte, (uint8_t)~CPUSLAB_PAGELOCK_WAITERS, __ATOMIC_RELAXED);
}

/* After an unlock that saw WAITERS.  The address may be another lock's by now, or no memory at all. */
__attribute__((noinline)) void cpuslab_pagelock_wake_unlocked(const uint8_t *address)
{
	uint8_t *byte = (uint8_t *)(uintptr_t)address;
	struct queue *queue = queue_of(byte);
	struct told told = {0};

	cpuslab_spin_lock(&queue->guard);
	if (!anyone_for(queue, byte))
		goto done; /* timed out, or served by another thread: rule 2 */
	uint8_t value = __atomic_load_n(byte, __ATOMIC_RELAXED);
	if (value & CPUSLAB_PAGELOCK_LOCKED) {
		/*
		 * The thread that took it did so under the guard, served the unlock's waiters, and left
		 * WAITERS right.
		 */
		serve_watchers(queue, byte, &told);
	} else if (!serve_free_lock(queue, byte, value, &told)) {
		wake_patient(queue, byte, &told);
		/* An owed waiter is still queued if a passer-by was faster. */
		if (!needs_waker(queue, byte))
			__atomic_fetch_and(byte, (uint8_t)~CPUSLAB_PAGELOCK_WAITERS, __ATOMIC_RELAXED);
	}
done:
	cpuslab_spin_unlock(&queue->guard);
	tell_all(&told);
}

/* After a change of user flags that saw WAITERS, by a thread that keeps the lock's memory. */
__attribute__((noinline)) void cpuslab_pagelock_wake_flags(const uint8_t *address)
{
	uint8_t *byte = (uint8_t *)(uintptr_t)address;
	struct queue *queue = queue_of(byte);
	struct told told = {0};

	cpuslab_spin_lock(&queue->guard);
	if (first_for(&queue->watchers, byte))
		serve_watchers(queue, byte, &told);
	cpuslab_spin_unlock(&queue->guard);
	tell_all(&told);
}

/* ---- waiting --------------------------------------------------------------------------------------- */

/* Runs once before the first waiter queues; two threads doing it at once do no harm. */
static void prepare_for_fork(void);

static bool deadline_is_valid(const struct timespec *deadline)
{
	return deadline->tv_nsec >= 0 && deadline->tv_nsec < 1000000000;
}

/* Sleeps until told; false at the deadline.  Signals and stray wakeups only make it look again. */
static bool wait_until_told(struct waiter *waiter, const struct timespec *deadline)
{
	for (;;) {
		uint32_t state = __atomic_load_n(&waiter->state, __ATOMIC_ACQUIRE);

		if (state == WOKEN || state == GRANTED)
			return true;
		/* PARKED before the futex looks: a waker that finds WAITING need not wake. */
		if (state == WAITING && !__atomic_compare_exchange_n(&waiter->state, &state, PARKED, false,
								     __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE))
			continue;
		if (os_futex_wait_until(&waiter->state, PARKED, deadline) == ETIMEDOUT)
			return false;
	}
}

/*
 * Takes a waiter that has reached its deadline out of the queue.  False if a waker was faster: it has yet
 * to tell the waiter, and its word counts.
 */
static bool leave_queue(struct waiter *waiter, struct waiters *list, struct queue *queue)
{
	cpuslab_spin_lock(&queue->guard);
	bool left = waiter->queued;
	if (left) {
		take_out(list, waiter);
		/* Rule 2: this thread still uses the lock, so the memory exists. */
		if (!needs_waker(queue, waiter->byte))
			__atomic_fetch_and(waiter->byte, (uint8_t)~CPUSLAB_PAGELOCK_WAITERS,
					   __ATOMIC_RELAXED);
	}
	cpuslab_spin_unlock(&queue->guard);
	if (!left)
		wait_until_told(waiter, NULL);
	return left;
}

/* Under the guard, before the waiter is in a list: no waker can have told it yet. */
static void begin_to_wait(struct waiter *waiter)
{
	__atomic_store_n(&waiter->state, WAITING, __ATOMIC_RELAXED);
}

enum attempt { TAKEN, QUEUED, REFUSED };

/*
 * Takes the lock if it is free and nobody is owed it; else puts the waiter (if any) into `list`.  Leaves
 * WAITERS right in all cases: here a waiter that was `awake` pays the debt of rule 4, and queues again
 * ahead of the patient ones.  Called with the guard, which it releases.
 */
static enum attempt take_or_queue_guarded(struct queue *queue, uint8_t *byte, struct waiter *waiter,
					  struct waiters *list, bool awake)
{
	bool patient = waiter && list == &queue->patient, in_front = awake && patient;
	struct told told = {0};
	enum attempt attempt;

	if (awake)
		no_more_awake(queue, waiter);
	uint8_t value = __atomic_load_n(byte, __ATOMIC_RELAXED), wanted;
	for (;;) {
		if (value & CPUSLAB_PAGELOCK_LOCKED) {
			bool left_to_others = patient && enough_awake_for(queue, byte);

			attempt = waiter ? QUEUED : REFUSED;
			wanted = (waiter && !left_to_others) || needs_waker(queue, byte)
					 ? value | CPUSLAB_PAGELOCK_WAITERS
					 : value;
		} else if (serve_free_lock(queue, byte, value, &told)) {
			value = __atomic_load_n(byte, __ATOMIC_RELAXED);
			continue;
		} else {
			attempt = TAKEN;
			wanted = locked_value(queue, byte, value, &told);
		}
		if (__atomic_compare_exchange_n(byte, &value, wanted, true, __ATOMIC_ACQUIRE,
						__ATOMIC_RELAXED))
			break;
	}
	if (attempt == QUEUED) {
		begin_to_wait(waiter);
		if (in_front)
			prepend(list, waiter);
		else
			append(list, waiter);
	}
	cpuslab_spin_unlock(&queue->guard);
	tell_all(&told);
	return attempt;
}

static enum attempt take_or_queue(struct queue *queue, uint8_t *byte, struct waiter *waiter,
				  struct waiters *list, bool awake)
{
	cpuslab_spin_lock(&queue->guard);
	return take_or_queue_guarded(queue, byte, waiter, list, awake);
}

static struct lock_backoff backoff_in_a_crowd(const struct queue *queue)
{
	if (mostly_free(queue))
		return (struct lock_backoff){LOOKS_IN_A_CROWD, PAUSES_IF_MOSTLY_FREE,
					     LOCK_PAUSES / PAUSES_IF_MOSTLY_FREE};
	return (struct lock_backoff){LOOKS_IN_A_CROWD, LOCK_PAUSES, 1};
}

/*
 * Looks for a free lock for a short while; for a very short one where others wait already.  Their waker is
 * a thread that runs or will run, and it can have the CPU that does not look.
 */
static bool spin_for_lock(struct cpuslab_pagelock *lock, struct queue *queue)
{
	struct lock_backoff backoff = {LOOKS, LOCK_FIRST_PAUSES, LOCK_GROWTH};
	bool crowd = false;

	for (unsigned look = 0;; look++) {
		uint8_t value = __atomic_load_n(&lock->byte, __ATOMIC_RELAXED);

		if (value & CPUSLAB_PAGELOCK_WAITERS)
			return false;
		if (!(value & CPUSLAB_PAGELOCK_LOCKED) && cpuslab_pagelock_lock_fast(lock, value)) {
			if (crowd)
				note_look(queue, look);
			return true;
		}
		if (!crowd && __atomic_load_n(&queue->crowd, __ATOMIC_RELAXED) > 0) {
			crowd = true;
			look = 0;
			backoff = backoff_in_a_crowd(queue);
		}
		if (!lock_back_off(&backoff))
			return false;
	}
}

/*
 * For a woken waiter before it returns to the guard: while it looks, passers-by lock and unlock at full
 * speed (rule 4).  Without this the owner of a lock that is nearly always held woke a waiter after every
 * few turns, only for it to queue again.
 */
static void look_for_free_lock(const struct queue *queue, const uint8_t *byte)
{
	struct lock_backoff backoff = backoff_in_a_crowd(queue);

	while ((__atomic_load_n(byte, __ATOMIC_RELAXED) & CPUSLAB_PAGELOCK_LOCKED) && lock_back_off(&backoff))
		;
}

static int queue_for_lock(struct queue *queue, uint8_t *byte, const struct timespec *deadline)
{
	struct waiter waiter = {.byte = byte};
	unsigned allowed = __atomic_load_n(&unfairness, __ATOMIC_RELAXED);

	for (unsigned lost = 0;; lost++) {
		/* Owed waiters are served first come, first served. */
		struct waiters *list = lost >= allowed ? &queue->owed : &queue->patient;

		if (lost > 0)
			look_for_free_lock(queue, byte);
		if (take_or_queue(queue, byte, &waiter, list, lost > 0) == TAKEN)
			return 0;
		if (!wait_until_told(&waiter, deadline) && leave_queue(&waiter, list, queue))
			break;
		if (__atomic_load_n(&waiter.state, __ATOMIC_ACQUIRE) == GRANTED)
			return 0;
	}
	/* A free lock is taken whatever the deadline says. */
	return take_or_queue(queue, byte, NULL, NULL, false) == TAKEN ? 0 : ETIMEDOUT;
}

static int lock_slowly(struct cpuslab_pagelock *lock, const struct timespec *deadline)
{
	struct queue *queue = queue_of(&lock->byte);

	if (spin_for_lock(lock, queue))
		return 0;
	prepare_for_fork();
	__atomic_fetch_add(&queue->crowd, 1, __ATOMIC_RELAXED);
	int status = queue_for_lock(queue, &lock->byte, deadline);
	__atomic_fetch_sub(&queue->crowd, 1, __ATOMIC_RELAXED);
	return status;
}

__attribute__((noinline)) void cpuslab_pagelock_lock_slow(struct cpuslab_pagelock *lock)
{
	lock_slowly(lock, NULL);
}

__attribute__((noinline)) int cpuslab_pagelock_timedlock_slow(struct cpuslab_pagelock *lock,
							      const struct timespec *deadline)
{
	return deadline_is_valid(deadline) ? lock_slowly(lock, deadline) : EINVAL;
}

__attribute__((noinline)) bool cpuslab_pagelock_trylock_slow(struct cpuslab_pagelock *lock)
{
	struct queue *queue = queue_of(&lock->byte);

	/*
	 * A locked byte needs a fast answer; a free one with WAITERS set needs the guard (rule 3).  Its
	 * holder may be about to hand the lock over, and may have lost its CPU.
	 */
	if (cpuslab_pagelock_is_locked(lock) || !cpuslab_spin_trylock(&queue->guard))
		return false;
	return take_or_queue_guarded(queue, &lock->byte, NULL, NULL, false) == TAKEN;
}

int cpuslab_pagelock_wait(struct cpuslab_pagelock *lock, uint8_t mask, uint8_t seen,
			  const struct timespec *deadline)
{
	uint8_t *byte = &lock->byte, value;
	struct queue *queue = queue_of(byte);
	struct lock_backoff backoff = LOCK_BACKOFF;

	mask &= CPUSLAB_PAGELOCK_FLAGS | CPUSLAB_PAGELOCK_LOCKED;
	if (!mask || (deadline && !deadline_is_valid(deadline)))
		return EINVAL;
	do {
		value = __atomic_load_n(byte, __ATOMIC_ACQUIRE);
		if ((value ^ seen) & mask)
			return 0;
	} while (lock_back_off(&backoff));

	prepare_for_fork();
	struct waiter watcher = {.byte = byte, .mask = mask, .seen = seen};
	cpuslab_spin_lock(&queue->guard);
	/* As in rule 1: a change after this exchange sees WAITERS, one before it is seen here. */
	do {
		if ((value ^ seen) & mask)
			break;
	} while (!__atomic_compare_exchange_n(byte, &value, value | CPUSLAB_PAGELOCK_WAITERS, true,
					      __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE));
	bool changed = (value ^ seen) & mask;
	if (!changed) {
		begin_to_wait(&watcher);
		append(&queue->watchers, &watcher);
	}
	cpuslab_spin_unlock(&queue->guard);

	if (changed || wait_until_told(&watcher, deadline) || !leave_queue(&watcher, &queue->watchers, queue))
		return 0;
	return ETIMEDOUT;
}

unsigned cpuslab_pagelock_set_unfairness(unsigned races)
{
	return __atomic_exchange_n(&unfairness, races, __ATOMIC_RELAXED);
}

/* ---- fork ------------------------------------------------------------------------------------------ */

/* Only where the kernel cannot wipe. */
static void note_fork(void)
{
	fork_begins(&own.fork);
}

static void end_fork(void)
{
	fork_is_over(&own.fork);
}

/* Unless a handler of the program's came first, and the queues may have new waiters. */
static void forget_waiters(void)
{
	if (fork_is_to_reset(&own.fork))
		__builtin_memset(&queues, 0, sizeof queues);
}

/*
 * Threads that come at once each prepare for themselves: one that relied on another to do so could be forked
 * before it has.  What libc allocates for a handler may come here again, with libc's lock on handlers held,
 * which keeps forks away.
 */
static void prepare_for_fork(void)
{
	static bool prepared;

	if (__builtin_expect(__atomic_load_n(&prepared, __ATOMIC_RELAXED), 1) || own.prepares)
		return;
	own.prepares = true;
	/* If there is no memory for a handler, the next thread tries again. */
	if (os_wipe_on_fork(&queues, sizeof queues) == 0 ||
	    pthread_atfork(note_fork, end_fork, forget_waiters) == 0)
		__atomic_store_n(&prepared, true, __ATOMIC_RELAXED);
	own.prepares = false;
}
