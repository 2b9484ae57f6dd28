/* SPDX-License-Identifier: MIT */
/*
 * A model of src/lock/pagelock.c for spin: park, wake, handover, timeouts, watchers, a stale WAITERS bit, and
 * memory that the last owner frees and uses again while an unlock of the first life is still waking.
 *
 * One byte, one queue.  Every access to the byte, to a waiter's state, and every futex call is one step; what
 * happens under the guard to the queue alone is part of the step beside it, since nobody else can see it.
 *
 *   THREADS   contenders (3)           ROUNDS    acquisitions of each, in each life of the memory (1)
 *   LIVES     lives of the memory (2)  RACES     lost races before the lock is owed (1)
 *   MIXED     1: the first contender began when no race could be lost: it is owed the lock at once (0)
 *   WATCHER   1: a further thread waits for an unlock (0)
 *   TIMED     so many of the contenders may reach a deadline in every wait, at any time (1)
 *   AWAKE     so many waiters may be awake at a time (1); LIGHT 1: or one, and which it is changes at any time (0)
 *   STALE     1: WAITERS is set at the start, with nobody queued: a forked child (0)
 *   BREAK     0: the lock as it is.  1 to 9: with one of its rules left out; each must be found wanting:
 *             1 a waker that finds nobody clears WAITERS; 2 unlock reads the byte again; 3 a woken waiter does
 *             not set WAITERS for the others; 4 a free lock is taken though somebody is owed it; 5 the futex
 *             sleeps without comparing; 6 the inline path takes a lock with WAITERS set;
 *             7 an awake waiter that has come back still counts as awake; 8 those owed the lock rely on an awake
 *             waiter too; 9 the hint says that nobody need be awake
 *
 * Checked: one owner at a time; nobody touches freed memory; nobody sleeps for ever (invalid end state); a
 * woken waiter loses at most RACES races; nobody but those owed it before overtakes one that is owed the lock;
 * a WAITERS bit without a waiter is not left behind by any thread that took the lock the slow way.
 */
#ifndef THREADS
#define THREADS 3
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif
#ifndef LIVES
#define LIVES 2
#endif
#ifndef RACES
#define RACES 1
#endif
#ifndef MIXED
#define MIXED 0
#endif
#ifndef WATCHER
#define WATCHER 0
#endif
#ifndef TIMED
#define TIMED 1
#endif
#ifndef AWAKE
#define AWAKE 1
#endif
#ifndef LIGHT
#define LIGHT 0
#endif
#ifndef STALE
#define STALE 0
#endif
#ifndef BREAK
#define BREAK 0
#endif

#define ALL	(THREADS + WATCHER)
#define NOBODY	255
#define ALLOWED	(MIXED && me == 0 -> 0 : RACES)
#define ALIVE	assert(!freed)

mtype = { WAITING, PARKED, WOKEN, GRANTED };

bool locked, waiters = STALE, freed, guard;
byte owner = NOBODY;
byte users = THREADS, life = 0, done = 0;

mtype state[ALL];
bool asleep[ALL];
byte owed[ALL], owed_count;
byte patient[ALL], patient_count;
bool awake[THREADS]; /* was woken to compete again, and has not come back to the guard */
byte awake_count;
byte most = AWAKE; /* awake at a time: a hint, which the lock learns from what its waiters find */
bool watching; /* the one watcher is queued */
byte overtaken[ALL]; /* acquisitions by others since it has been owed the lock */

#define ANYONE	(owed_count + patient_count + watching > 0)
#define ENOUGH_AWAKE	(awake_count >= most)
#define NEEDS_WAKER	(owed_count + watching > 0 || (patient_count > 0 && !ENOUGH_AWAKE))

/* Before whatever depends on the hint. */
inline learn()
{
#if LIGHT
	if
#if BREAK == 9
	:: most = 0
#else
	:: most = 1
#endif
	:: most = AWAKE
	fi
#else
	skip
#endif
}

/* Macros, because an inline takes no array. */
#define append(list, count, who) list[count] = who; count++

#define prepend(list, count, who) \
	i = count; \
	do \
	:: i > 0 -> list[i] = list[i - 1]; i-- \
	:: else -> break \
	od; \
	list[0] = who; \
	count++

#define take_out(list, count, who) \
	i = 0; \
	do \
	:: list[i] != who -> i++ \
	:: else -> break \
	od; \
	count--; \
	do \
	:: i < count -> list[i] = list[i + 1]; i++ \
	:: else -> break \
	od; \
	list[count] = 0; \
	i = 0

inline acquired(who)
{
	assert(owner == NOBODY);
	owner = who;
	i = 0;
	do
	:: i < owed_count -> overtaken[owed[i]]++; assert(overtaken[owed[i]] < THREADS - 1); i++
	:: else -> break
	od;
	i = 0
}

inline lock_guard()
{
	atomic { !guard -> guard = true }
}

inline tell(who, what)
{
	if
	:: who != NOBODY ->
		d_step { before = state[who]; state[who] = what }
		/* The waiter may be gone by now: this is a wake of an address. */
		if
		:: before == PARKED -> asleep[who] = false
		:: else
		fi;
		who = NOBODY;
		before = WAITING
	:: else
	fi
}

/* Serves a byte seen free: `granted` and `told` are to be told after the guard.  Keeps to one step. */
inline serve_watcher()
{
	if
	:: watching -> watching = false; told = THREADS
	:: else
	fi
}

inline grant()
{
	granted = owed[0];
	take_out(owed, owed_count, granted);
	locked = true;
	waiters = NEEDS_WAKER;
	acquired(granted)
}

inline wake_unlocked()
{
	lock_guard();
	if
#if BREAK == 1
	:: !ANYONE -> ALIVE; waiters = false
#else
	:: !ANYONE
#endif
	:: ANYONE ->
		ALIVE;
		seen = locked;
		if
		:: seen
		:: !seen ->
			d_step { ALIVE; serve_watcher() }
			learn();
			d_step {
				ALIVE;
				if
				:: owed_count > 0 && !locked -> grant()
				:: else ->
					if
					:: patient_count > 0 && !ENOUGH_AWAKE ->
						woken = patient[0];
						awake[woken] = true;
						awake_count++;
						take_out(patient, patient_count, woken)
					:: else
					fi
				fi
			}
			if
			:: granted == NOBODY ->
				learn();
				d_step {
					ALIVE;
					if
					:: !NEEDS_WAKER -> waiters = false
					:: else
					fi
				}
			:: else
			fi
		fi;
		seen = false
	fi;
	guard = false;
	tell(granted, GRANTED);
	tell(woken, WOKEN);
	tell(told, WOKEN)
}

inline unlock()
{
	d_step {
		ALIVE;
		assert(owner == me);
		owner = NOBODY;
		locked = false;
		seen = waiters
	}
#if BREAK == 2
	d_step { ALIVE; seen = waiters }
#endif
	if
	:: seen -> seen = false; wake_unlocked()
	:: else
	fi
}

/* queue: whether to queue at all.  Sets `taken`. */
inline take_or_queue(queue)
{
	lock_guard();
	do
	:: learn();
	   d_step {
		ALIVE;
#if BREAK != 7
		awake_count = awake_count - awake[me];
		awake[me] = false;
#endif
		if
		:: locked ->
			if
#if BREAK == 8
			:: (queue && !ENOUGH_AWAKE) || NEEDS_WAKER -> waiters = true
#else
			:: (queue && (lost >= ALLOWED || !ENOUGH_AWAKE)) || NEEDS_WAKER -> waiters = true
#endif
			:: else
			fi;
#if BREAK == 3
			if
			:: lost > 0 || !queue -> waiters = false
			:: else
			fi;
#endif
			if
			:: queue ->
				state[me] = WAITING;
				if
				:: lost >= ALLOWED -> append(owed, owed_count, me); overtaken[me] = 0
				:: lost < ALLOWED && lost > 0 -> prepend(patient, patient_count, me)
				:: else -> append(patient, patient_count, me)
				fi
			:: else
			fi;
			taken = false;
			more = false
		:: !locked ->
			serve_watcher();
			if
			:: owed_count > 0 && granted == NOBODY && BREAK != 4 -> grant(); more = true
			:: else ->
				locked = true;
				waiters = NEEDS_WAKER;
#if BREAK == 3
				waiters = false;
#endif
				acquired(me);
				taken = true;
				more = false
			fi
		fi
	   }
	   if
	   :: more -> more = false
	   :: else -> break
	   fi
	od;
	guard = false;
	tell(granted, GRANTED);
	tell(told, WOKEN)
}

inline leave_queue()
{
	lock_guard();
	d_step {
		ALIVE;
		i = 0;
		left = true;
		if
		:: me == THREADS ->
			left = watching;
			watching = false
		:: else ->
			do
			:: i < owed_count && owed[i] == me -> take_out(owed, owed_count, me); break
			:: i < owed_count && owed[i] != me -> i++
			:: i >= owed_count -> left = false; break
			od;
			i = 0;
			do
			:: left -> break
			:: !left && i < patient_count && patient[i] == me ->
				take_out(patient, patient_count, me);
				left = true
			:: !left && i < patient_count && patient[i] != me -> i++
			:: !left && i >= patient_count -> break
			od
		fi;
		i = 0;
		if
		:: left && !NEEDS_WAKER -> waiters = false
		:: else
		fi
	}
	guard = false
}

/* Sets `timed_out`; at the end the state is WOKEN or GRANTED, or the waiter has left the queue. */
inline wait_until_told()
{
	timed_out = false;
	do
	:: atomic { (state[me] == WOKEN || state[me] == GRANTED) -> break }
	:: atomic { state[me] == WAITING -> state[me] = PARKED }
#if BREAK == 5
	:: state[me] == PARKED -> asleep[me] = true;
#else
	:: atomic { state[me] == PARKED -> asleep[me] = true }
#endif
		if
		:: !asleep[me] /* woken, rightly or not */
		:: me < TIMED && asleep[me] ->
			asleep[me] = false;
			leave_queue();
			if
			:: left -> timed_out = true; left = false; break
			:: else /* a waker was faster: its word counts */
			fi
		fi
	od
}

active [THREADS] proctype contender()
{
	byte me = _pid, round = 0, lost = 0, i = 0, lived = 0;
	byte granted = NOBODY, woken = NOBODY, told = NOBODY;
	mtype before = WAITING;
	bool seen = false, taken = false, more = false, left = false, timed_out = false, last = false;

	do
	:: lived == LIVES ->
		d_step {
			done++;
			assert(done < ALL || (!ANYONE && (freed || !waiters)))
		}
		break
	:: lived < LIVES && life == lived ->
		d_step {
			ALIVE;
			if
#if BREAK == 6
			:: !locked -> locked = true; acquired(me); taken = true
#else
			:: !locked && !waiters -> locked = true; acquired(me); taken = true
#endif
			:: else -> taken = false
			fi
		}
		do
		:: taken -> break
		:: else ->
			take_or_queue(true);
			if
			:: taken
			:: else ->
				wait_until_told();
				if
				:: timed_out ->
					take_or_queue(false);
					break
				:: !timed_out && state[me] == GRANTED -> taken = true
				:: else -> assert(lost < ALLOWED); lost++
				fi
			fi
		od;
		skip; /* spin wants a step of its own between a break and a d_step */
		d_step { lost = 0; state[me] = WAITING; timed_out = false }
		if
		:: taken ->
			d_step {
				assert(owner == me);
				taken = false;
				round++;
				if
				:: round == ROUNDS -> users--; round = 0; lived++; last = (LIVES > 1 && users == 0)
				:: else
				fi
			}
			if
			:: last ->
				/* The last user frees the lock that it holds; the memory becomes a new lock. */
				d_step { assert(!ANYONE); freed = true; owner = NOBODY; last = false }
				d_step {
					locked = false;
					waiters = false;
					life++;
					if
					:: life < LIVES -> freed = false; users = THREADS
					:: else
					fi
				}
			:: else -> unlock()
			fi
		:: else /* timed out: tries again */
		fi
	od
}

#if WATCHER
active proctype watcher()
{
	byte me = _pid, i = 0;
	bool left = false, timed_out = false, changed = false;

	/* Each round waits for an unlock; a lock found free counts as one. */
	lock_guard();
	d_step {
		if
		:: !locked -> changed = true
		:: else -> waiters = true; watching = true; state[me] = WAITING
		fi
	}
	guard = false;
	if
	:: changed
	:: else -> wait_until_told()
	fi;
	skip;
	d_step { done++; assert(done < ALL || (!ANYONE && !waiters)) }
}
#endif
