/* SPDX-License-Identifier: MIT */
/*
 * A model of a cache's slabs, for spin: freeing against refilling against shrinking, and against allocations
 * that wait for nobody.  It mirrors src/slab/slab.c: lock_cache, try_lock_cache, adopt_made, slab_alloc_batch,
 * make_constructed_slab, slab_try_alloc, push_made, slab_free_batch, settle_freed, slab_cache_shrink,
 * release_slabs.
 *
 * A slab's marks (which objects are allocated) are what the code keeps in next[] and bump; what is done under
 * the lock is one step from one place where it may be given up to the next.
 *
 *   THREADS (2)  CALLS of each (3)  SLABS that memory suffices for (2)  OBJECTS of each (2)
 *   CONSTRUCT  1: slabs are made without the lock (1)
 *
 * Each of these leaves one rule out, and must be found wanting:
 *   PLANT_PUSH_LATE   slab_try_alloc hands its object out before the slab is on the stack `made`
 *   PLANT_NO_ADOPT    slab_free_batch does not take over what is on that stack
 *   PLANT_KEPT        slab_cache_shrink gives the kept empty slab back, and keeps it
 *   PLANT_RELEASE     slab_free_batch takes the lock to count only after it has given a slab back
 *   PLANT_COUNT_LATE  slab_alloc_batch gives up the lock to make a slab before it has counted what it has taken
 *
 * Checked: no object is handed out twice or out of a slab that was given back; counts are right whenever the
 * lock is free; in the end every slab is in a list, kept, full, or given back.
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
#define OBJECTS 2
#endif
#ifndef CONSTRUCT
#define CONSTRUCT 1
#endif

#define NONE	255

mtype = { GONE, MAKING, MADE, PARTIAL, FULL, KEPT, SURPLUS };	/* where a slab is */
mtype = { FREE, GOING, USED };					/* what an object is to the program */

mtype place[SLABS] = GONE;
byte marks[SLABS];			/* bit i: object i is allocated */
byte in_use[SLABS];
mtype state[SLABS * OBJECTS] = FREE;
byte made = NONE, after[SLABS] = NONE;	/* the stack */
byte kept = NONE, slabs, allocated, finished;
bool locked;

#define is_marked(s, i)	(marks[s] & (1 << (i)))

/* With the lock. */
inline settle(s)
{
	if
	:: in_use[s] == OBJECTS -> place[s] = FULL
	:: else -> place[s] = PARTIAL
	fi
}

inline adopt_made()
{
	atomic { m = made; made = NONE }
	do
	:: m != NONE ->
		atomic { next = after[m]; assert(place[m] == MADE); slabs++; allocated = allocated + in_use[m]; settle(m); m = next }
	:: else -> break
	od
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
		i = 0; n = 0; m = 0;
		do
		:: i < SLABS ->
			if
			:: place[i] == PARTIAL || place[i] == FULL || place[i] == KEPT -> m++; n = n + in_use[i]
			:: else
			fi;
			i++
		:: else -> break
		od;
		assert(m == slabs && n == allocated);
		i = 0; n = 0; m = NONE;
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

/* One free object of a slab; the caller sees to the lists. */
inline take(s)
{
	atomic {
		assert(in_use[s] < OBJECTS);
		i = 0;
		do
		:: is_marked(s, i) -> i++
		:: else -> break
		od;
		marks[s] = marks[s] | (1 << i);
		in_use[s]++;
		object = s * OBJECTS + i;
		i = 0
	}
}

inline hand_out(o)
{
	atomic { assert(state[o] == FREE && place[o / OBJECTS] != GONE); state[o] = USED }
}

inline slab_with_free_object(s)
{
	atomic {
		s = 0;
		do
		:: s < SLABS && place[s] != PARTIAL -> s++
		:: else -> break
		od;
		if
		:: s == SLABS -> s = kept; kept = NONE
		:: else
		fi
	}
}

/* Up to two objects, as a refill takes a batch. */
inline alloc_batch()
{
	lock();
	first = NONE; taken = 0;
	do
	:: taken < 2 ->
		slab_with_free_object(s);
		if
		:: s == NONE ->
#if CONSTRUCT
#ifndef PLANT_COUNT_LATE
			if
			:: taken > 0 -> break
			:: else
			fi;
#endif
			unlock();
			make_slab(s);
			lock();
#else
			make_slab(s);
#endif
			if
			:: s == NONE -> break
			:: else -> slabs++
			fi
		:: else
		fi;
		take(s);
		settle(s);
		taken++;
		if
		:: first == NONE -> first = object; object = NONE
		:: else
		fi
	:: else -> break
	od;
	allocated = allocated + taken;
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
		slab_with_free_object(s);
		if
		:: s != NONE -> take(s); settle(s); allocated++
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

/* `object`, of whatever slab. */
inline give()
{
	s = object / OBJECTS;
#ifdef PLANT_NO_ADOPT
	atomic { !locked -> locked = true }
#else
	lock();
#endif
	atomic {
		i = object % OBJECTS;
		assert(is_marked(s, i) && (place[s] == PARTIAL || place[s] == FULL));
		marks[s] = marks[s] - (1 << i);
		in_use[s]--;
		allocated--;
		i = 0;
		state[object] = FREE;
		if
		:: in_use[s] > 0 -> place[s] = PARTIAL; s = NONE
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
}

inline shrink()
{
	lock();
	atomic {
		s = kept;
		if
		:: s != NONE ->
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
	byte calls = 0, s = NONE, object = NONE, first = NONE, taken = 0, i = 0, n = 0, m = NONE, next = NONE;

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
				assert(place[i] != MAKING && place[i] != SURPLUS);
				assert((place[i] == KEPT) == (kept == i));
				n = 0;
				for (m : 0 .. OBJECTS - 1) {
					n = n + (state[i * OBJECTS + m] == USED -> 1 : 0);
					assert(place[i] == GONE || (state[i * OBJECTS + m] == USED) == (is_marked(i, m) > 0))
				}
				assert(place[i] != GONE || n == 0)
			}
		:: else
		fi
	}
}
