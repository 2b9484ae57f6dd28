/* SPDX-License-Identifier: MIT */
/*
 * A model of a cache's slabs, for spin: freeing against refilling against shrinking, and against allocations
 * that wait for nobody.  It mirrors src/slab/slab.c: lock_cache, try_lock_cache, adopt_made, slab_alloc_batch,
 * lock_slab_with_free_object, take_and_unlock, make_constructed_slab, slab_try_alloc, push_made, lock_slab,
 * unlock_slab, settle, retire, slab_cache_shrink, release_slabs.
 *
 * A slab's marks (which objects are allocated) are what the code keeps in next[] and bump.  They and in_use
 * change with the slab's own lock, in steps, since only that lock makes them one; `place` is what bin and flags
 * say, and changes with the cache's lock.  Objects are freed one at a time.
 *
 *   THREADS (2)  CALLS of each (3)  SLABS that memory suffices for (2)  OBJECTS of each (3)
 *   CONSTRUCT  1: slabs are made without the lock (1)
 *
 * Each of these leaves one rule out, and must be found wanting:
 *   PLANT_PUSH_LATE   slab_try_alloc hands its object out before the slab is on the stack `made`
 *   PLANT_NO_ADOPT    whoever frees takes the cache's lock without taking over what is on that stack
 *   PLANT_KEPT        slab_cache_shrink gives the kept empty slab back, and keeps it
 *   PLANT_RELEASE     slab_free_batch takes the lock to count only after it has given a slab back
 *   PLANT_NO_LOCK     frees do not take the slab's lock
 *   PLANT_EARLY       frees give up the slab's lock before they take the cache's
 *   PLANT_UNSETTLED   frees leave a slab that was full where it was
 *   PLANT_WAIT        with the cache's lock an allocation waits for a slab's
 *
 * Checked: no object is handed out twice or out of a slab that was given back; the count of slabs is right
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

#define NONE	255

mtype = { GONE, MAKING, MADE, PARTIAL, FULL, EMPTY, KEPT, SURPLUS };	/* where a slab is */
mtype = { FREE, GOING, USED };					/* what an object is to the program */

mtype place[SLABS] = GONE;
byte marks[SLABS];			/* bit i: object i is allocated */
byte in_use[SLABS];
mtype state[SLABS * OBJECTS] = FREE;
byte made = NONE, after[SLABS] = NONE;	/* the stack */
byte kept = NONE, slabs, allocated, finished;
bool locked;				/* the cache */
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

/* Locks what it finds; a slab in which somebody is freeing is passed over. */
inline lock_slab_with_free_object(s)
{
	atomic {
		s = 0;
		do
#ifdef PLANT_WAIT
		:: s < SLABS && place[s] != PARTIAL -> s++
#else
		:: s < SLABS && (place[s] != PARTIAL || busy[s]) -> s++
#endif
		:: else -> break
		od;
		if
		:: s == SLABS ->
			s = kept;
			kept = NONE
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

/* Up to two objects, as a refill takes a batch. */
inline alloc_batch()
{
	lock();
	first = NONE; taken = 0;
	do
	:: taken < 2 ->
		lock_slab_with_free_object(s);
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
			:: s == NONE -> break
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
		lock_slab_with_free_object(s);
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
			take(s);
			allocated++;
#ifdef PLANT_PUSH_LATE
			hand_out(object);
			push_made(s);
			object = NONE
#else
			push_made(s)
#endif
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
	atomic { assert(place[s] == SURPLUS && in_use[s] == 0); place[s] = GONE }
}

/* `object`, of whatever slab: the program has it, so that the slab stays. */
inline give()
{
	s = object / OBJECTS;
#ifndef PLANT_NO_LOCK
	atomic { !busy[s] -> busy[s] = true }
#endif
	atomic {
		i = object % OBJECTS;
		assert(is_marked(s, i));
		assert(place[s] == PARTIAL || place[s] == FULL || place[s] == MADE || place[s] == EMPTY);
		used = marks[s] - (1 << i);
		i = 0
	}
	atomic { marks[s] = used; used = in_use[s]; state[object] = FREE }
	atomic { in_use[s] = used - 1; used = 0 }
	if
#ifdef PLANT_UNSETTLED
	:: in_use[s] == 0 ->
#else
	:: in_use[s] == 0 || place[s] != PARTIAL ->
#endif
#ifdef PLANT_EARLY
		busy[s] = false;
#endif
#ifdef PLANT_NO_ADOPT
		atomic { !locked -> locked = true }
#else
		lock();
#endif
		atomic {
			assert(place[s] != GONE && place[s] != KEPT && place[s] != MADE);
			settle(s, in_use[s]);
			busy[s] = false;
			if
			:: in_use[s] > 0 -> s = NONE
			:: in_use[s] == 0 && kept == NONE -> place[s] = KEPT; kept = s; s = NONE
			:: else -> place[s] = SURPLUS
#ifndef PLANT_RELEASE
				; slabs--
#endif
			fi
		}
#ifdef PLANT_RELEASE
		locked = false;
		if
		:: s != NONE -> give_back(s); lock(); slabs--; unlock()
		:: else
		fi
#else
		unlock();
		if
		:: s != NONE -> give_back(s)
		:: else
		fi
#endif
	:: else -> busy[s] = false
	fi;
	allocated--
}

inline shrink()
{
	lock();
	atomic {
		s = kept;
		if
		:: s != NONE ->
			assert(!busy[s]);
#ifndef PLANT_KEPT
			kept = NONE;
#endif
			slabs--;
			place[s] = SURPLUS
		:: else
		fi
	}
	unlock();
	if
	:: s != NONE -> give_back(s)
	:: else
	fi
}

active [THREADS] proctype thread()
{
	byte calls = 0, s = NONE, object = NONE, first = NONE, taken = 0, i = 0, n = 0, m = NONE, next = NONE, used = 0;

	do
	:: calls < CALLS ->
		calls++;
		if
		:: alloc_batch()
		:: try_alloc()
		:: atomic {
			/* An object that any thread has allocated. */
			object = 0;
			do
			:: object < SLABS * OBJECTS && state[object] != USED -> object++
			:: else -> break
			od;
			if
			:: object == SLABS * OBJECTS -> object = NONE
			:: else -> state[object] = GOING
			fi
			}
			if
			:: object != NONE -> give()
			:: else
			fi
		:: shrink()
		fi;
		atomic { s = NONE; object = NONE; first = NONE; taken = 0; next = NONE }
	:: else -> break
	od;
	atomic {
		finished++;
		if
		:: finished == THREADS ->
			for (i : 0 .. SLABS - 1) {
				assert(place[i] != MAKING && place[i] != SURPLUS && place[i] != EMPTY && !busy[i]);
				assert((place[i] == FULL) == (in_use[i] == OBJECTS));
				assert((place[i] == KEPT) == (kept == i));
				n = 0;
				for (m : 0 .. OBJECTS - 1) {
					n = n + (state[i * OBJECTS + m] == USED -> 1 : 0);
					assert(place[i] == GONE || (state[i * OBJECTS + m] == USED) == (is_marked(i, m) > 0))
				}
				assert(place[i] != GONE || n == 0);
				allocated = allocated - n
			}
			assert(allocated == 0)
		:: else
		fi
	}
}
