/* SPDX-License-Identifier: MIT */
/*
 * A model of src/lock/spinlock.c for spin, with store buffers: can the plain store that unlocks, delayed past
 * the load of `attention`, lose a wakeup?
 *
 * Each thread has a buffer for its one plain store, `locked = 0`, which reaches memory whenever it likes, but
 * before the thread's next atomic operation.  The barrier of a waiter empties the buffers of all threads, one
 * after the other.
 *
 *   THREADS  (3)    ROUNDS  acquisitions of each (2)
 *   POLL     1: the system has no such barrier; waiters poll (0)
 *   BREAK    0: the lock as it is.  1 no barrier; 2 a thread that slept does not set PARKED when it takes the
 *            lock; 3 the futex sleeps without comparing; 4 unlock looks before it stores
 *
 * Checked: one owner at a time, and nobody sleeps for ever (invalid end state).
 */
#ifndef THREADS
#define THREADS 3
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif
#ifndef POLL
#define POLL 0
#endif
#ifndef BREAK
#define BREAK 0
#endif

bool locked, parked;
bool pending[THREADS]; /* the store of 0 is still in this thread's buffer */
bool asleep[THREADS];
byte owners;

/* An atomic operation waits for the thread's own buffer. */
#define drain(who)                                \
	if                                        \
	:: pending[who] -> pending[who] = false; locked = false \
	:: else                                   \
	fi

inline exchange_locked()
{
	d_step {
		drain(me);
		taken = !locked;
		locked = true
	}
}

inline wake_one()
{
	if
	:: asleep[0] -> asleep[0] = false
	:: asleep[1] -> asleep[1] = false
#if THREADS > 2
	:: asleep[2] -> asleep[2] = false
#endif
#if THREADS > 3
	:: asleep[3] -> asleep[3] = false
#endif
	:: else
	fi
}

active [THREADS] proctype contender()
{
	byte me = _pid, round = 0, other = 0;
	bool taken = false, seen = false, slept = false;

	do
	:: round == ROUNDS -> break
	:: round < ROUNDS ->
		slept = false;
		exchange_locked();
		do
		:: taken -> break
		:: !taken ->
			d_step { drain(me); seen = parked; parked = true }
#if POLL
			if
			:: !seen ->
				do
				:: taken -> break
				:: !taken -> exchange_locked()
				od;
				slept = true;
				break
			:: else
			fi;
#elif BREAK != 1
			if
			:: !seen ->
				do
				:: other < THREADS ->
					d_step { drain(other); other++ }
				:: else -> break
				od;
				other = 0
			:: else
			fi;
#endif
			exchange_locked();
			if
			:: taken -> slept = false; break
			:: else
			fi;
			/* The futex compares and sleeps in one step. */
#if BREAK == 3
			if
			:: locked && parked -> asleep[me] = true
			:: else
			fi;
#else
			d_step {
				if
				:: locked && parked -> asleep[me] = true
				:: else
				fi
			}
#endif
			!asleep[me];
			slept = true;
			/* The spin that follows may take the lock, or may not. */
			if
			:: exchange_locked()
			:: skip
			fi
		od;
		if
		:: slept && BREAK != 2 -> d_step { drain(me); parked = true }
		:: else
		fi;
		d_step { owners++; assert(owners == 1); taken = false; round++ }

		owners--;
#if BREAK == 4
		seen = parked;
		pending[me] = true;
#else
		pending[me] = true;
		seen = parked;
#endif
		if
		:: seen ->
			d_step { drain(me); seen = parked; parked = false }
			if
			:: seen -> d_step { wake_one() }
			:: else
			fi
		:: else
		fi
	od
}

/* The processors: a buffered store reaches memory sooner or later. */
active proctype memory()
{
	byte i = 0;

end:	do
	:: d_step { pending[0] -> pending[0] = false; locked = false }
	:: d_step { pending[1] -> pending[1] = false; locked = false }
#if THREADS > 2
	:: d_step { pending[2] -> pending[2] = false; locked = false }
#endif
#if THREADS > 3
	:: d_step { pending[3] -> pending[3] = false; locked = false }
#endif
	od
}
