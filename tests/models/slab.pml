/* SPDX-License-Identifier: MIT */
/*
 * A model of a cache's slabs, for spin: freeing against refilling against shrinking, against pages that go back
 * while their slab stays, and against allocations that wait for nobody.  It mirrors src/slab/state.h:
 * slab_lock_cache, slab_begin_unlocked; slab.c: try_lock_cache, slab_adopt_made, slab_alloc_batch,
 * lock_slab_with_free_object, take_and_unlock, make_constructed_slab, slab_try_alloc, push_made, slab_free_batch,
 * free_objects, begin_alone, end_alone, begin_part, lock_slab, unlock_slab, settle, leave, slab_cache_shrink,
 * take_empty, slab_release; and hollow_walk.c: gather, hollow_walk.
 *
 * A slab's marks (which objects are allocated) are what the code keeps in next[] and bump.  They and in_use
 * change with the slab's own lock, in steps, since only that lock makes them one; `place` is what bin and flags
 * say, and changes with the cache's lock.  A slab that has untouched objects of another vCPU's may be passed over,
 * and so may any here.
 *
 *   THREADS (2)  CALLS of each (3)  SLABS that memory suffices for (2)  OBJECTS of each (3)
 *   CONSTRUCT  1: slabs are made without the lock (1)  BATCH  objects that are freed at once, 1 or 2 (1)
 *   HOME  1: slabs are passed over (0)
 *   HOLLOW  1: pages without an object go back, of one slab after the other (0)
 *   ALONE  1: frees may have all slabs with the cache's lock, for each object anew (0)
 *
 * Each of these leaves one rule out, and must be found wanting:
 *   PLANT_PUSH_LATE   slab_try_alloc hands its object out before the slab is on the stack `made`
 *   PLANT_NO_ADOPT    whoever frees takes the cache's lock without taking over what is on that stack
 *   PLANT_KEPT        take_empty gives a kept empty slab back, and keeps it
 *   PLANT_RELEASE     slab_free_batch takes the lock to count only after it has given a slab back
 *   PLANT_NO_LOCK     frees do not take the slab's lock
 *   PLANT_EARLY       frees give up the slab's lock before they take the cache's
 *   PLANT_UNSETTLED   frees leave a slab that was full where it was
 *   PLANT_WAIT        with the cache's lock an allocation waits for a slab's
 * and with BATCH, HOME, HOLLOW or ALONE:
 *   PLANT_ORDER       with the cache's lock a batch of frees waits for a slab's
 *   PLANT_REFUSED     an allocation that can make no slab does not look again at those that it has passed over
 *   PLANT_UNLOCKED    hollow_walk gives pages back when it has given up their slab's lock
 *   PLANT_LAST        hollow_walk goes on from a slab that it has unlocked
 *   PLANT_ALONE       begin_alone looks whether others are counted before it has the cache's lock, not again
 *   PLANT_COUNTED     slab_free_batch is counted, but does not look whether somebody has all slabs
 *
 * Checked: no object is handed out twice or out of a slab that was given back, and no page goes back that has one;
 * an allocation is refused only if no slab has an object for it; the count of slabs is right
 * whenever the cache's lock is free; nobody waits for ever; in the end every slab is in a list, kept, full, or
 * given back, as its marks say, and the count of objects is right.
 */
#ifndef THREADS
#define THREADS 2
#endif
#ifndef CALLS
#define CALLS 3
#endif
#ifndef SLABS
#define SLABS 2
#endif
#ifndef OBJECTS
#define OBJECTS 3
#endif
#ifndef CONSTRUCT
#define CONSTRUCT 1
#endif

#ifndef BATCH
#define BATCH 1
#endif
#ifndef HOME
#define HOME 0
#endif
#ifndef HOLLOW
#define HOLLOW 0
#endif

#ifndef ALONE
#define ALONE 0
#endif

#define NONE	255

mtype = { GONE, MAKING, MADE, PARTIAL, FULL, EMPTY, KEPT, SURPLUS };	/* where a slab is */
mtype = { FREE, GOING, USED };					/* what an object is to the program */

mtype place[SLABS] = GONE;
byte marks[SLABS];			/* bit i: object i is allocated */
byte in_use[SLABS];
byte owner[SLABS];			/* of a surplus slab: the thread that gives it back, and 1 */
mtype state[SLABS * OBJECTS] = FREE;
byte made = NONE, after[SLABS] = NONE;	/* the stack */
byte kept, slabs, allocated, finished;
#if HOLLOW
bool walking;				/* one thread at a time */
#endif
bool locked;				/* the cache */
#if ALONE
byte counted;				/* unlocked, and whether somebody has all slabs */
bool had;
#define begin_unlocked()	counted++
#define end_unlocked()	counted--
#else
#define begin_unlocked()	skip
#define end_unlocked()	skip
#endif
bool busy[SLABS];			/* a slab's own lock */

#define is_marked(s, i)	(marks[s] & (1 << (i)))

/* With the cache's lock, by what in_use was. */
inline settle(s, used)
{
	if
	:: used == OBJECTS -> place[s] = FULL
	:: used > 0 && used < OBJECTS -> place[s] = PARTIAL
	/* In no list; who made it so is about to retire it. */
	:: else -> place[s] = EMPTY
	fi
}

inline adopt_made()
{
	atomic { m = made; made = NONE }
	do
	:: m != NONE ->
		/* Somebody may be freeing into it: the count may be an old one when it is used. */
		atomic { next = after[m]; assert(place[m] == MADE); slabs++; used = in_use[m] }
		atomic { settle(m, used); m = next; used = 0 }
	:: else -> break
	od;
	next = NONE
}

inline lock()
{
	atomic { !locked -> locked = true }
	adopt_made()
}

/* What must be true whenever the lock is free, but for slabs on the stack, which nobody has counted yet. */
inline unlock()
{
	atomic {
		i = 0; m = 0;
		do
		:: i < SLABS ->
			if
			:: place[i] == PARTIAL || place[i] == FULL || place[i] == KEPT || place[i] == EMPTY -> m++
			:: else
			fi;
			assert(place[i] != EMPTY || busy[i]);
			i++
		:: else -> break
		od;
		assert(m == slabs);
		i = 0; m = NONE;
		locked = false
	}
}

/* A run of pages that nobody has, with its descriptor. */
inline make_slab(s)
{
	atomic {
		s = 0;
		do
		:: s < SLABS && place[s] != GONE -> s++
		:: else -> break
		od;
		if
		:: s == SLABS -> s = NONE
		:: else -> place[s] = MAKING; marks[s] = 0; in_use[s] = 0
		fi
	}
}

/* One free object of a slab, with its lock, or unknown to others. */
inline take(s)
{
	atomic {
		assert(in_use[s] < OBJECTS);
		i = 0;
		do
		:: is_marked(s, i) -> i++
		:: else -> break
		od;
		assert(i < OBJECTS);
		object = s * OBJECTS + i;
		used = marks[s] | (1 << i);
		i = 0
	}
	atomic { marks[s] = used; used = in_use[s] }
	atomic { in_use[s] = used + 1; used = 0 }
}

/* With both locks. */
inline take_and_unlock(s)
{
	take(s);
	atomic { allocated++; settle(s, in_use[s]); busy[s] = false }
}

inline hand_out(o)
{
	atomic { assert(state[o] == FREE && place[o / OBJECTS] != GONE); state[o] = USED }
}

/* One that is kept; NONE if there is none.  With the cache's lock. */
inline take_kept(s)
{
	s = 0;
	do
	:: s < SLABS && place[s] != KEPT -> s++
	:: else -> break
	od;
	if
	:: s == SLABS -> assert(kept == 0); s = NONE
	:: else -> kept--
	fi
}

/* Locks what it finds; a slab in which somebody is freeing is passed over, and so may be one of another vCPU. */
inline lock_slab_with_free_object(s, anyone)
{
	atomic {
		s = 0;
		do
#ifdef PLANT_WAIT
		:: s < SLABS && place[s] != PARTIAL -> s++
#else
		:: s < SLABS && (place[s] != PARTIAL || busy[s]) -> s++
#endif
#if HOME
		:: s < SLABS && !(anyone) -> s++
#endif
		:: s == SLABS -> break
		:: s < SLABS && place[s] == PARTIAL && !busy[s] -> break
#ifdef PLANT_WAIT
		:: s < SLABS && place[s] == PARTIAL && busy[s] -> break
#endif
		od;
		if
		:: s == SLABS -> take_kept(s)
		:: else
		fi;
#ifndef PLANT_WAIT
		if
		:: s != NONE -> assert(!busy[s]); busy[s] = true
		:: else
		fi
#endif
	}
#ifdef PLANT_WAIT
	if
	:: s != NONE -> atomic { !busy[s] -> busy[s] = true }
	:: else
	fi
#endif
}

/* With the lock: there is nothing to be had, but what others may be freeing. */
inline refused()
{
	d_step {
		assert(kept == 0);
		i = 0;
		do
		:: i < SLABS -> assert(place[i] != PARTIAL || !alone); i++
		:: else -> break
		od;
		i = 0
	}
}

/* Up to two objects, as a refill takes a batch. */
inline alloc_batch()
{
	alone = finished == THREADS - 1;
	lock();
	first = NONE; taken = 0;
	do
	:: taken < 2 ->
		lock_slab_with_free_object(s, false);
		if
		:: s == NONE ->
#if CONSTRUCT
			if
			:: taken > 0 -> break
			:: else
			fi;
			unlock();
			make_slab(s);
			lock();
#else
			make_slab(s);
#endif
			if
			:: s == NONE ->
#ifndef PLANT_REFUSED
				lock_slab_with_free_object(s, true);
#endif
				if
				:: s == NONE ->
					if
					:: taken == 0 -> refused()
					:: else
					fi;
					break
				:: else
				fi
			:: else -> atomic { slabs++; busy[s] = true }
			fi
		:: else
		fi;
		take_and_unlock(s);
		taken++;
		if
		:: first == NONE -> first = object; object = NONE
		:: else
		fi
	:: else -> break
	od;
	unlock();
	if
	:: first != NONE -> hand_out(first)
	:: else
	fi;
	if
	:: object != NONE -> hand_out(object)
	:: else
	fi
}

inline push_made(s)
{
	place[s] = MADE;
	do
	:: n = made;
		after[s] = n;
		atomic {
			if
			:: made == n -> made = s; break
			:: else
			fi
		}
	od;
	n = 0
}

inline try_alloc()
{
	s = NONE;
	object = NONE;
	if
	:: atomic { !locked -> locked = true }
		adopt_made();
		lock_slab_with_free_object(s, true);
		if
		:: s != NONE -> take_and_unlock(s)
		:: else
		fi;
		unlock()
	/* While somebody holds the lock for long, one slab too many is enough. */
	:: locked && made == NONE -> skip
	:: locked && made != NONE -> goto out
	fi;
	if
	:: object == NONE ->
		make_slab(s);
		if
		:: s != NONE ->
			begin_unlocked();
			take(s);
			allocated++;
#ifdef PLANT_PUSH_LATE
			hand_out(object);
			push_made(s);
			object = NONE
#else
			push_made(s);
#endif
			end_unlocked()
		:: else
		fi
	:: else
	fi;
out:	if
	:: object != NONE -> hand_out(object)
	:: else
	fi
}

inline give_back(s)
{
	atomic { assert(place[s] == SURPLUS && in_use[s] == 0); place[s] = GONE; owner[s] = 0 }
}

/* slab_release: all that this thread has taken out of the cache. */
inline release()
{
	s = 0;
	do
	:: s < SLABS && owner[s] == t + 1 -> give_back(s); s++
	:: s < SLABS && owner[s] != t + 1 -> s++
	:: else -> break
	od;
	s = NONE
}

/* An object that the program has, of whatever slab, which therefore stays; or NONE. */
inline choose(object)
{
	atomic {
		object = 0;
		do
#if BATCH > 1
		:: object < SLABS * OBJECTS -> object++
#else
		:: object < SLABS * OBJECTS && state[object] != USED -> object++
#endif
		:: object < SLABS * OBJECTS && state[object] == USED -> break
		:: object == SLABS * OBJECTS -> break
		od;
		if
		:: object == SLABS * OBJECTS -> object = NONE
		:: else -> state[object] = GOING
		fi
	}
}

/* lock_slab: a slab's lock before its cache's, and with the cache's it is only tried. */
inline lock_slab(s)
{
	if
	:: !has_cache
	:: has_cache ->
#ifdef PLANT_ORDER
		atomic { !busy[s] -> busy[s] = true }
#else
		atomic {
			if
			:: !busy[s] -> busy[s] = true; held = true
			:: else -> held = false
			fi
		}
		if
		:: !held -> unlock(); has_cache = false
		:: else
		fi;
		held = false
#endif
	fi;
	if
	:: !has_cache -> atomic { !busy[s] -> busy[s] = true }
	:: else
	fi
}

inline unlock_slab(s)
{
	if
#ifdef PLANT_UNSETTLED
	:: in_use[s] == 0 ->
#else
	:: in_use[s] == 0 || place[s] != PARTIAL ->
#endif
#ifdef PLANT_EARLY
		busy[s] = false;
#endif
		if
		:: !has_cache ->
#ifdef PLANT_NO_ADOPT
			atomic { !locked -> locked = true }
#else
			lock();
#endif
			has_cache = true
		:: else
		fi;
		atomic {
			assert(place[s] != GONE && place[s] != KEPT && place[s] != MADE);
			settle(s, in_use[s]);
			busy[s] = false;
			if
			:: in_use[s] > 0
			:: in_use[s] == 0 && kept == 0 -> place[s] = KEPT; kept++
			:: else ->
				place[s] = SURPLUS;
				owner[s] = t + 1;
#ifdef PLANT_RELEASE
				uncounted++
#else
				slabs--
#endif
			fi
		}
	:: else -> busy[s] = false
	fi
}

#if ALONE
/* The next objects of a batch: with all slabs, or not. */
inline begin_part()
{
	if
	:: own -> atomic { had = false; own = false }; unlock(); has_cache = false
	:: else
	fi;
	if
	:: counted == 1 ->
		if
		:: has_cache
		:: !has_cache ->
			if
			:: atomic { !locked -> locked = true }
				adopt_made();
				has_cache = true
			:: skip
			fi
		fi;
		atomic {
			if
#ifdef PLANT_ALONE
			:: has_cache -> own = true; had = true
#else
			:: has_cache && counted == 1 -> assert(!had); own = true; had = true
#endif
			:: else
			fi
		}
	:: skip
	fi
}
#endif

/* What is to be freed is known before the first lock is taken. */
inline give()
{
	choose(object);
#if BATCH > 1
	if
	:: object != NONE -> choose(first)
	:: else
	fi;
#endif
#if ALONE
	atomic { counted++; held = had }
#ifdef PLANT_COUNTED
	held = false;
#endif
	if
	:: held -> held = false; lock(); has_cache = true
	:: else
	fi;
#endif
	do
	:: object != NONE ->
		taken++;
		s = object / OBJECTS;
#if ALONE
		begin_part();
#endif
#ifndef PLANT_NO_LOCK
		if
		:: own
		:: else -> lock_slab(s)
		fi;
#endif
		atomic {
			i = object % OBJECTS;
			assert(is_marked(s, i));
			assert(place[s] == PARTIAL || place[s] == FULL || place[s] == MADE || place[s] == EMPTY);
			used = marks[s] - (1 << i);
			i = 0
		}
		atomic { marks[s] = used; used = in_use[s]; state[object] = FREE }
		atomic { in_use[s] = used - 1; used = 0; object = first; first = NONE }
		unlock_slab(s)
	:: else -> break
	od;
#if ALONE
	if
	:: own -> atomic { had = false; own = false }
	:: else
	fi;
#endif
	allocated = allocated - taken;
	if
	:: has_cache ->
#ifdef PLANT_RELEASE
		locked = false
#else
		unlock()
#endif
	:: else
	fi;
	has_cache = false;
	release();
	end_unlocked();
#ifdef PLANT_RELEASE
	if
	:: uncounted > 0 -> lock(); slabs = slabs - uncounted; uncounted = 0; unlock()
	:: else
	fi
#endif
}

/* take_empty: those that are kept.  With the lock, which it gives up. */
inline unlock_and_release()
{
	atomic {
		taken = 0;
		do
		:: kept > 0 ->
			take_kept(s);
			assert(!busy[s]);
			slabs--;
			place[s] = SURPLUS;
			owner[s] = t + 1;
			taken++
#ifdef PLANT_KEPT
			; kept++; break
#endif
		:: else -> break
		od
	}
	begin_unlocked();
	unlock();
	release();
	end_unlocked()
}

inline shrink()
{
	lock();
	unlock_and_release()
}

#if HOLLOW
inline pages_go(s)
{
	atomic {
		i = 0;
		do
		:: i < OBJECTS -> assert(is_marked(s, i) || state[s * OBJECTS + i] == FREE); i++
		:: else -> break
		od;
		i = 0
	}
	/* What is not marked goes; in between nobody may have been given it. */
	used = marks[s];
	atomic {
		do
		:: i < OBJECTS ->
			assert((used & (1 << i)) || state[s * OBJECTS + i] == FREE);
			i++
		:: else -> break
		od;
		i = 0; used = 0
	}
}

/* gather: so many of the next slabs on the list.  `first` is the last one that was walked to, which stays locked. */
inline hollow_walk()
{
	first = NONE;
	begin_unlocked();
	do
	:: lock();
		atomic {
			/* By the links, so that the last one must be where it was. */
			assert(first == NONE || place[first] == PARTIAL);
			s = (first == NONE -> 0 : first + 1);
			do
			:: s < SLABS && (place[s] != PARTIAL || busy[s]) -> s++
			:: s < SLABS && place[s] == PARTIAL && !busy[s] -> s++	/* no such pages */
			:: s < SLABS && place[s] == PARTIAL && !busy[s] -> busy[s] = true; break
			:: s == SLABS -> s = NONE; break
			od;
#ifndef PLANT_LAST
			if
			:: first != NONE -> busy[first] = false
			:: else
			fi;
#endif
			first = s
		}
		unlock();
		if
		:: first == NONE -> break
		:: else
		fi;
#ifdef PLANT_UNLOCKED
		busy[first] = false;
		pages_go(first);
		break
#endif
		pages_go(first);
#ifdef PLANT_LAST
		busy[first] = false
#endif
		if
		:: skip
		:: busy[first] = false; break	/* enough */
		fi
	od;
	first = NONE;
	end_unlocked()
}
#endif

active [THREADS] proctype thread()
{
	byte calls = 0, t = _pid, s = NONE, object = NONE, first = NONE, taken = 0;
	byte i = 0, n = 0, m = NONE, next = NONE, used = 0;
	bool alone = false, has_cache = false, held = false, own = false;
#ifdef PLANT_RELEASE
	byte uncounted = 0;
#endif

	do
	:: calls < CALLS ->
		calls++;
		if
		:: alloc_batch()
		:: try_alloc()
		:: give()
		:: shrink()
#if HOLLOW
		:: atomic { !walking -> walking = true }
			hollow_walk();
			walking = false
#endif
		fi;
		atomic { s = NONE; object = NONE; first = NONE; taken = 0; next = NONE }
	:: else -> break
	od;
	atomic {
		finished++;
		if
		:: finished == THREADS ->
			next = 0;
			for (i : 0 .. SLABS - 1) {
				next = next + (place[i] == KEPT -> 1 : 0);
				assert(place[i] != MAKING && place[i] != SURPLUS && place[i] != EMPTY && !busy[i]);
				assert((place[i] == FULL) == (in_use[i] == OBJECTS));
				n = 0;
				for (m : 0 .. OBJECTS - 1) {
					n = n + (state[i * OBJECTS + m] == USED -> 1 : 0);
					assert(place[i] == GONE || (state[i * OBJECTS + m] == USED) == (is_marked(i, m) > 0))
				}
				assert(place[i] != GONE || n == 0);
				allocated = allocated - n
			}
#if ALONE
			assert(counted == 0 && !had);
#endif
			assert(allocated == 0 && next == kept)
		:: else
		fi
	}
}
