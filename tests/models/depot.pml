/* SPDX-License-Identifier: MIT */
/*
 * A model of the exchange of magazines with the depot, for spin, while their capacity grows and shrinks and the
 * tunables change under it.  It mirrors src/depot/depot.c: depot_take_filled, depot_take_empty, depot_put,
 * depot_try_alloc, depot_age, depot_tune, depot_count_misses, and what they are made of (has_room, push_filled,
 * pop_filled, pop_object, let_leave, see_off, new_magazine); and unless_stale of src/magazine/magazine.c.  That
 * magazines shrink is tuning without the tunables' last word.
 *
 * What leaves in portions (drain_leaving, depot_depart), and forks, are portions.pml's matter.
 *
 * What happens under the depot's lock is one step, what happens without it are steps of their own: a look
 * whether a magazine is stale, draining, freeing, making a new one.  A thread has at most one magazine in hand, and one
 * more that it sees off.
 *
 *   THREADS (2)  CALLS of each (3)  MAGAZINES that memory suffices for (2)  OBJECTS (3)
 *   Capacities are 1 and 2; at most LIMIT (1) filled magazines wait.  Here that a full depot sends magazines to
 *   the slabs stands for all reasons to do so (see "Order." in depot.h).
 *
 * Each of these leaves one rule out, and must be found wanting:
 *   PLANT_STALE      has_room does not ask for a magazine's capacity
 *   PLANT_LATE       depot_tune lets the magazines leave first, and changes the capacity in a second step
 *   PLANT_GLANCED    see_off takes the magazine that it saw leaving before it had the lock
 *   PLANT_KEPT       depot_take_filled frees the empty magazine that it has kept, too
 *   PLANT_DRAINED    depot_take_empty returns the magazine that it drained, and frees it
 *   PLANT_GROWN      depot_count_misses leaves the smaller empty magazines where they are
 *   PLANT_EMPTIED    pop_object leaves a smaller magazine that it has emptied among the empty ones
 *   PLANT_UNCOUNTED  pop_object takes an object out of a waiting magazine and does not count it
 *
 * Checked, whenever nobody has the lock: the counts are those of the stacks, and no stale magazine waits.
 * Always: a magazine is in one place; none is used after it was freed.  In the end no object is lost.
 */
#ifndef THREADS
#define THREADS 2
#endif
#ifndef CALLS
#define CALLS 3
#endif
#ifndef MAGAZINES
#define MAGAZINES 2
#endif
#ifndef OBJECTS
#define OBJECTS 3
#endif
#ifndef LIMIT
#define LIMIT 1
#endif

#define NONE 255

mtype = { GONE, HAND, FILLED, EMPTY, LEAVING };

mtype place[MAGAZINES] = GONE;
byte capacity[MAGAZINES], count[MAGAZINES];
byte now = 1;	/* the depot's capacity */
byte filled_count, empty_count, objects;
bool adapts = true;	/* until somebody tunes it */
byte in_slabs = OBJECTS, used, finished;

#define is_stale(m)	(capacity[m] > now || (capacity[m] < now && (count[m] == 0 || !adapts)))
#ifdef PLANT_STALE
#define has_room(m)	(count[m] == 0 || filled_count < LIMIT)
#else
#define has_room(m)	(!is_stale(m) && (count[m] == 0 || filled_count < LIMIT))
#endif

inline push(m)
{
	assert(place[m] == HAND);
	if
	:: count[m] > 0 -> place[m] = FILLED; filled_count++; objects = objects + count[m]
	:: else -> place[m] = EMPTY; empty_count++
	fi
}

inline pop(m, from)
{
	m = 0;
	do
	:: m < MAGAZINES && place[m] != from -> m++
	:: else -> break
	od;
	if
	:: m == MAGAZINES -> m = NONE
	:: else ->
		place[m] = HAND;
		if
		:: from == FILLED -> filled_count--; objects = objects - count[m]
		:: from == LEAVING -> objects = objects - count[m]
		:: else -> empty_count--
		fi
	fi
}

/* As the lock is given up. */
inline consistent()
{
	i = 0; sum = 0; seen = 0;
	do
	:: i < MAGAZINES ->
		if
		:: place[i] == FILLED -> seen++; sum = sum + count[i]; assert(count[i] > 0 && !is_stale(i))
		:: place[i] == EMPTY -> assert(count[i] == 0 && !is_stale(i))
		:: place[i] == LEAVING -> sum = sum + count[i]
		:: else
		fi;
		i++
	:: else -> break
	od;
	assert(seen == filled_count && sum == objects);
	i = 0; sum = 0; seen = 0
}

inline drain(m)
{
	atomic { assert(place[m] == HAND); in_slabs = in_slabs + count[m]; count[m] = 0 }
}

inline release(m)
{
	atomic { assert(place[m] == HAND && count[m] == 0); place[m] = GONE }
}

inline give_back(m)
{
	drain(m);
	release(m)
}

inline put(m)
{
	atomic {
		kept = has_room(m);
		if
		:: kept -> push(m)
		:: else
		fi;
		consistent()
	}
	if
	:: !kept -> give_back(m)
	:: else
	fi
}

inline take_filled()
{
	atomic {
		pop(got, FILLED);
		kept = got != NONE && hand != NONE && has_room(hand);
		if
		:: kept -> push(hand)
		:: else
		fi;
		consistent()
	}
#ifdef PLANT_KEPT
	if
	:: got != NONE && hand != NONE -> release(hand)
#else
	if
	:: got != NONE && hand != NONE && !kept -> release(hand)
#endif
	:: else
	fi;
	if
	:: got != NONE -> hand = got
	:: else
	fi
}

inline take_empty()
{
	atomic {
		kept = hand != NONE && has_room(hand);
		if
		:: kept -> push(hand)
		:: else
		fi;
		pop(got, EMPTY);
		consistent()
	}
	if
	:: hand != NONE && !kept ->
		drain(hand);
#ifdef PLANT_DRAINED
		if
		:: got == NONE && !is_stale(hand) -> got = hand
		:: else
		fi;
		release(hand)
#else
		if
		:: got == NONE && !is_stale(hand) -> got = hand
		:: else -> release(hand)
		fi
#endif
	:: else
	fi;
	hand = got;
	if
	:: hand == NONE ->
		/* new_magazine, if there is memory: by the capacity as it was a moment ago. */
		seen = now;
		atomic {
			hand = 0;
			do
			:: hand < MAGAZINES && place[hand] != GONE -> hand++
			:: else -> break
			od;
			if
			:: hand == MAGAZINES -> hand = NONE
			:: else -> place[hand] = HAND; capacity[hand] = seen; count[hand] = 0
			fi;
			seen = 0
		}
	:: else
	fi
}

inline see_off()
{
	do
	:: true ->
#ifdef PLANT_GLANCED
		atomic {
			got = 0;
			do
			:: got < MAGAZINES && place[got] != LEAVING -> got++
			:: else -> break
			od;
			if
			:: got == MAGAZINES -> got = NONE
			:: else
			fi
		}
		atomic {
			if
			:: got != NONE -> assert(place[got] == LEAVING); place[got] = HAND; objects = objects - count[got]
			:: else
			fi;
			consistent()
		}
#else
		atomic { pop(got, LEAVING); consistent() }
#endif
		if
		:: got != NONE -> give_back(got)
		:: else -> break
		fi
	od
}

/* Smaller empty magazines leave, filled ones stay. */
inline grow()
{
	atomic {
		i = 0;
		if
		:: adapts && now == 1 ->
			now = 2;
#ifndef PLANT_GROWN
			do
			:: i < MAGAZINES ->
				if
				:: place[i] == EMPTY -> empty_count--; place[i] = LEAVING
				:: else
				fi;
				i++
			:: else -> break
			od
#endif
		:: else
		fi;
		i = 0;
		consistent()
	}
	see_off()
}

/* Lets all magazines of the stacks leave, and sees off what does without the lock. */
inline let_leave(resize, tuned)
{
	atomic {
		i = 0;
		adapts = adapts && !tuned;
#ifndef PLANT_LATE
		if
		:: resize -> now = 3 - now
		:: else
		fi;
#endif
		do
		:: i < MAGAZINES ->
			if
			:: place[i] == FILLED -> filled_count--; place[i] = LEAVING
			:: place[i] == EMPTY -> empty_count--; place[i] = LEAVING
			:: else
			fi;
			i++
		:: else -> break
		od;
		i = 0;
		consistent()
	}
#ifdef PLANT_LATE
	atomic {
		if
		:: resize -> now = 3 - now
		:: else
		fi;
		consistent()
	}
#endif
	see_off()
}

inline try_alloc()
{
	atomic {
		i = 0;
		do
		:: i < MAGAZINES && place[i] != FILLED -> i++
		:: else -> break
		od;
		if
		:: i < MAGAZINES ->
			count[i]--;
			used++;
#ifndef PLANT_UNCOUNTED
			objects--;
#endif
			if
			:: count[i] == 0 ->
				filled_count--;
				if
#ifndef PLANT_EMPTIED
				:: is_stale(i) -> place[i] = LEAVING
#endif
				:: else -> place[i] = EMPTY; empty_count++
				fi
			:: else
			fi
		:: else
		fi;
		consistent()
	}
}

active [THREADS] proctype thread()
{
	byte calls = 0, hand = NONE, got = NONE, i = 0, sum = 0, seen = 0;
	bool kept = false;

	do
	:: calls < CALLS ->
		calls++;
		/* unless_stale */
		if
		:: hand != NONE && is_stale(hand) -> put(hand); hand = NONE
		:: else
		fi;
		if
		/* An allocation with nothing in hand, or an empty magazine. */
		:: hand == NONE || count[hand] == 0 ->
			take_filled();
			if
			:: hand != NONE && count[hand] > 0 -> atomic { count[hand]--; used++ }
			:: hand != NONE && count[hand] == 0 && in_slabs > 0 ->
				atomic { in_slabs--; count[hand]++ }
			:: else
			fi
		/* A free with nothing in hand, or a full magazine. */
		:: hand == NONE || count[hand] > 0 ->
			take_empty();
			if
			:: hand != NONE -> atomic {
				if
				:: used > 0 && count[hand] < capacity[hand] -> used--; count[hand]++
				:: else
				fi }
			:: else
			fi
		:: let_leave(true, true)
		:: let_leave(false, true)
		/* The capacity shrinks, or magazines have not been needed. */
		:: let_leave(now == 2 && adapts, false)
		:: grow()
		:: try_alloc()
		fi;
		atomic { got = NONE; kept = false }
	:: else -> break
	od;
	if
	:: hand != NONE -> put(hand)
	:: else
	fi;
	/* As the depot ages. */
	see_off();
	atomic {
		finished++;
		if
		:: finished == THREADS ->
			sum = 0;
			for (i : 0 .. MAGAZINES - 1) {
				assert(place[i] != HAND && place[i] != LEAVING);
				sum = sum + (place[i] == GONE -> 0 : count[i])
			}
			assert(sum + in_slabs + used == OBJECTS)
		:: else
		fi
	}
}
