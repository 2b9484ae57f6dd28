/* SPDX-License-Identifier: MIT */
/*
 * A model of what leaves a depot in portions, for spin: against magazines that come and go, refills, several who
 * see off, and a fork at any instant.  It mirrors
 *
 *   src/depot/depot.c           stack_push, stack_pop, push_leaving, pop_filled, arrive, depot_take_filled,
 *                               depot_take_empty, depot_put, drain_batch, is_of_use, pop_unneeded, pop_leaving,
 *                               drain_leaving, see_off, let_leave, depot_age, depot_ebb, depot_depart, depot_empty,
 *                               depot_repair
 *   src/magazine/reclaim.c      magazine_tick, see_off_next, see_off_portion, begin_departure, follow_ebb, reclaim
 *
 * There is one depot, and magazines of one object.  A thread has one in hand, as a slow path does; where there is
 * none to be had from the depot it refills its own.  What is stale and goes to the slabs for that is depot.pml's
 * matter, how magazines come off the words magazine.pml's.
 *
 *   THREADS (2)  CALLS of each (2)  MAGAZINES that memory suffices for (3)  OBJECTS (3)
 *   WAITING  filled magazines that are in the depot at the start (0)
 *   PORTION  objects that go at a time (1)  GATHER  that gather, until a call that brings some sees them off (2)
 *   EMPTY_KEPT  empty magazines that wait where they are of use (1)
 *   FORK  1: each store is a step, and a fork may come between any two; then the threads are gone, and the child
 *         repairs the depot, ages it and sees off what leaves (0)
 *
 * Each of these leaves one rule out, and must be found wanting:
 *   PLANT_FORGOTTEN   depot_depart ends the departure though the portion was used up
 *   PLANT_SKIPPED     begin_departure goes on at the cache where the last departure was
 *   PLANT_NO_WALK     see_off_next does not ask for the census lock
 *   PLANT_TWICE       pop_leaving lets the emptied magazine wait, and leaves it to the caller as well
 *   PLANT_UNCOUNTED   pop_unneeded takes a magazine that leaves, and does not count it
 *   PLANT_GATHERED    arrive does not count the objects of what gathers
 *   PLANT_ALL         drain_leaving drains what there is, not a portion
 * and with FORK:
 *   PLANT_TAKEN       drain_leaving takes all that leaves in hand, not one magazine at a time
 *   PLANT_HEAD        stack_push stores the head before the magazine's link
 *   PLANT_UNREPAIRED  depot_repair leaves the counts as they are
 *   PLANT_HELD        magazine_repair leaves the census lock as it is
 *
 * Checked, whenever the depot's lock is given up: the counts are those of the stacks.  Whenever the census lock is:
 * what is due to go has its turn before it.  Always: a magazine is in one place, and none is used after it was
 * freed; nobody drains more than a portion and one magazine at once; and the census lock's owner is alone.  In the
 * end, or in the child, no object is there twice; none is lost but what the dead threads had in hand, each what it
 * allocates or frees by and one that it drained; and when the depot was aged twice nothing waits or leaves.
 */
#ifndef THREADS
#define THREADS 2
#endif
#ifndef CALLS
#define CALLS 2
#endif
#ifndef MAGAZINES
#define MAGAZINES 3
#endif
#ifndef OBJECTS
#define OBJECTS 3
#endif
#ifndef WAITING
#define WAITING 0
#endif
#ifndef PORTION
#define PORTION 1
#endif
#ifndef GATHER
#define GATHER 2
#endif
#ifndef EMPTY_KEPT
#define EMPTY_KEPT 1
#endif
#ifndef FORK
#define FORK 0
#endif

#define NONE	255
#define ALL	255

/* What happens under the lock is one step where nobody can look in between. */
#if FORK
#define SECTION
#else
#define SECTION	atomic
#endif

/* The stacks. */
#define FILLED	0
#define EMPTY	1
#define LEAVING	2

byte head[3] = NONE, next[MAGAZINES] = NONE;
byte count[MAGAZINES];
bool gone[MAGAZINES] = true;	/* its block is the metadata's */
byte filled_count, empty_count, filled_low;
byte objects, leaving_objects;
bool gathers, departs, ebbs;
byte stay;
bool locked;

/* departure, of reclaim.c; `passed` for a next that is beyond the depot */
bool due, passed;
bool census;
byte walkers;

/* In hand, the child's too: what a slow path came with, what it is to have instead or moves, and what it drains. */
byte hand[THREADS + 1] = NONE, got[THREADS + 1] = NONE, out[THREADS + 1] = NONE;

byte in_slabs = OBJECTS, used, going, finished;
bool forked;

inline stack_push(s, m)
{
#ifdef PLANT_HEAD
	atomic { rest = head[s]; head[s] = m }
	next[m] = rest;
	rest = NONE
#else
	next[m] = head[s];
	head[s] = m
#endif
}

inline stack_pop(s, m)
{
	m = head[s];
	if
	:: m != NONE -> head[s] = next[m]
	:: else
	fi
}

inline push_leaving(m)
{
	stack_push(LEAVING, m);
	leaving_objects = leaving_objects + count[m]
}

inline push_empty(m)
{
	stack_push(EMPTY, m);
	empty_count++
}

inline pop_empty(m)
{
	stack_pop(EMPTY, m);
	if
	:: m != NONE -> empty_count--
	:: else
	fi
}

inline pop_filled(m)
{
	stack_pop(FILLED, m);
	if
	:: m != NONE ->
		objects = objects - count[m];
		filled_count--;
		if
		:: filled_count < filled_low -> filled_low = filled_count
		:: else
		fi
	:: else
	fi
}

/* Walks a stack: `i` magazines with `sum` objects. */
inline walk_stack(s)
{
	i = 0; sum = 0; at = head[s];
	do
	:: at == NONE -> break
	:: else ->
		assert(!gone[at] && i < MAGAZINES);
		assert((count[at] == 0) == (s == EMPTY) || s == LEAVING);
		sum = sum + count[at];
		i++;
		at = next[at]
	od
}

inline consistent()
{
	d_step {
		walk_stack(FILLED);
		total = sum;
		assert(i == filled_count);
		walk_stack(EMPTY);
		assert(i == empty_count);
		walk_stack(LEAVING);
		total = total + sum;
		assert(sum == leaving_objects && total == objects);
		i = 0; sum = 0; at = 0; total = 0
	}
}

inline lock()
{
	atomic { !locked -> locked = true }
}

inline unlock()
{
	atomic { consistent(); locked = false }
}

inline release(m)
{
	atomic { assert(!gone[m] && count[m] == 0); gone[m] = true; m = NONE }
}

/* The objects are marked free in their slab, one after the other, and then the magazine has none. */
inline drain(m)
{
	atomic {
		assert(!gone[m]);
		in_slabs = in_slabs + count[m];
		drained = drained + count[m];
		count[m] = 0
	}
}

inline new_magazine(m)
{
	atomic {
		m = 0;
		do
		:: m < MAGAZINES && !gone[m] -> m++
		:: else -> break
		od;
		if
		:: m == MAGAZINES -> m = NONE
		:: else -> gone[m] = false
		fi
	}
}

/* With the lock: into `out`, what is to be drained next. */
inline pop_unneeded()
{
	stack_pop(LEAVING, out[t]);
	if
	:: out[t] != NONE ->
		objects = objects - count[out[t]];
#ifndef PLANT_UNCOUNTED
		leaving_objects = leaving_objects - count[out[t]]
#endif
	:: out[t] == NONE && ebbs && objects > stay -> pop_filled(out[t])
	:: else
	fi
}

/* `emptied` waits here where it is of use. */
inline pop_leaving()
{
	SECTION {
		lock();
		pop_unneeded();
		if
		:: emptied != NONE && empty_count < EMPTY_KEPT ->
			push_empty(emptied);
#ifndef PLANT_TWICE
			emptied = NONE
#endif
		:: emptied == NONE || !(gathers || ebbs) || empty_count >= EMPTY_KEPT
		fi;
		unlock()
	}
}

/* `emptied` is what may be returned. */
inline drain_leaving()
{
	drained = 0;
#ifdef PLANT_TAKEN
	SECTION {
		lock();
		rest = head[LEAVING];
		head[LEAVING] = NONE;
		objects = objects - leaving_objects;
		leaving_objects = 0;
		unlock()
	}
	do
	:: rest != NONE -> out[t] = rest; rest = next[rest]; drain(out[t]); release(out[t])
	:: else -> break
	od;
	most = 0;
	limit = ALL;
#endif
	do
	:: most > 0 ->
		pop_leaving();
		if
		:: out[t] == NONE -> break
		:: else
		fi;
		if
		:: emptied != NONE -> release(emptied)
		:: else
		fi;
		atomic {
			cost = count[out[t]];
			/* A slab that this gives back counts, too. */
			if
			:: cost > 0 && cost < most -> cost = most
			:: skip
			fi
		}
		drain(out[t]);
		atomic {
#ifndef PLANT_ALL
			most = most - (cost < most -> cost : most);
#endif
			cost = 0;
			emptied = out[t];
			out[t] = NONE
		}
	:: else -> break
	od;
	assert(drained <= limit);
	drained = 0
}

/* All of it, whoever is in a hurry. */
inline see_off()
{
	do
	:: head[LEAVING] != NONE ->
		pop_leaving();
		if
		:: out[t] == NONE -> break
		:: else -> drain(out[t]); release(out[t])
		fi
	:: else -> break
	od;
	drained = 0
}

/* With the lock; `hand` is where it belongs then.  Of many small objects some gather though others wait.  `plenty`:
 * enough has gathered. */
inline arrive()
{
	plenty = false;
	if
	:: count[hand[t]] > 0 -> gathers = true
	:: gathers = false
	fi;
	if
	:: count[hand[t]] > 0 && !gathers ->
		stack_push(FILLED, hand[t]);
		filled_count++;
		objects = objects + count[hand[t]]
	:: count[hand[t]] > 0 ->
#ifndef PLANT_GATHERED
		objects = objects + count[hand[t]];
#endif
		push_leaving(hand[t]);
		plenty = leaving_objects + 1 > GATHER
	:: else -> push_empty(hand[t])
	fi;
	hand[t] = NONE
}

inline drain_batch()
{
	atomic { most = GATHER; limit = GATHER };
	drain_leaving();
	most = 0
}

inline depot_put()
{
	SECTION { lock(); arrive(); unlock() }
	if
	:: plenty ->
		drain_batch();
		if
		:: emptied != NONE -> release(emptied)
		:: else
		fi;
		plenty = false
	:: else
	fi
}

/* In return for an empty magazine, or none. */
inline depot_take_filled()
{
	SECTION {
		lock();
		pop_filled(got[t]);
		if
		:: got[t] != NONE && hand[t] != NONE -> push_empty(hand[t])
		:: else
		fi;
		atomic {
			if
			:: got[t] != NONE -> hand[t] = got[t]; got[t] = NONE
			:: else
			fi
		}
		unlock()
	}
}

inline depot_take_empty()
{
	SECTION {
		lock();
		if
		:: hand[t] != NONE -> arrive()
		:: else
		fi;
		if
		:: !plenty -> pop_empty(got[t])
		:: else
		fi;
		unlock()
	}
	if
	:: plenty -> drain_batch(); atomic { got[t] = emptied; emptied = NONE }
	:: else
	fi;
	if
	:: got[t] == NONE -> new_magazine(got[t])
	:: else
	fi;
	atomic { hand[t] = got[t]; got[t] = NONE; plenty = false }
}

/* With the lock: so many filled ones, and all empty ones but `keep`. */
inline let_leave(filled, keep)
{
	i = filled;
	do
	:: i > 0 && head[FILLED] != NONE ->
		/* The count of objects has it as before. */
		stack_pop(FILLED, got[t]);
		push_leaving(got[t]);
		filled_count--;
		i--
	:: else -> break
	od;
	do
	:: empty_count > keep -> pop_empty(got[t]); push_leaving(got[t])
	:: else -> break
	od;
	filled_low = filled_count;
	got[t] = NONE;
	i = 0
}

inline depot_age(wanted)
{
	/* end_look, without the lock */
	unneeded = filled_low;
	if
	:: wanted -> unneeded = filled_count
	:: skip
	fi;
	if
	:: unneeded == 0 && head[LEAVING] == NONE && empty_count <= 1 ->
		filled_low = filled_count
	:: else ->
		SECTION {
			lock();
			let_leave(unneeded, 1);
			if
			:: !wanted -> departs = true
			:: else
			fi;
			unlock()
		}
		if
		:: wanted -> see_off()
		:: else
		fi
	fi;
	unneeded = 0
}

inline depot_ebb()
{
	SECTION {
		lock();
		if
		:: stay = 0
		:: stay = (OBJECTS - in_slabs > objects -> OBJECTS - in_slabs - objects : 0)
		fi;
		departs = true;
		ebbs = true;
		unlock()
	}
}

/* Up to `most` objects; what is left of it is in `most`. */
inline depot_depart()
{
	if
	:: departs ->
		drain_leaving();
		if
		:: emptied != NONE -> release(emptied)
		:: else
		fi;
#ifndef PLANT_FORGOTTEN
		if
		:: most > 0 -> ebbs = false; departs = false
		:: else
		fi
#else
		ebbs = false; departs = false; most = 1
#endif
	:: else
	fi
}

inline depot_empty()
{
	SECTION { lock(); let_leave(ALL, 0); unlock() }
	see_off()
}

/* With the census lock. */
inline see_off_portion()
{
	atomic { most = PORTION; limit = PORTION };
	if
	:: !passed ->
		depot_depart();
		passed = most > 0
	:: else
	fi;
	if
	:: passed -> due = false
	:: else
	fi;
	most = 0
}

inline begin_departure()
{
#ifndef PLANT_SKIPPED
	passed = false;
#endif
	due = true
}

inline begin_walk()
{
	atomic { walkers++; assert(walkers == 1) }
}

inline end_walk()
{
	atomic {
		assert(!departs || (due && !passed));
		walkers--;
		census = false
	}
}

inline see_off_next()
{
#ifdef PLANT_NO_WALK
	if
	:: due -> see_off_portion()
	:: else
	fi
#else
	if
	:: atomic { !census -> census = true };
		begin_walk();
		if
		:: due -> see_off_portion()
		:: else
		fi;
		end_walk()
	:: census
	fi
#endif
}

inline follow_ebb()
{
	if
	:: atomic { !census -> census = true };
		begin_walk();
		depot_ebb();
		begin_departure();
		if
		:: see_off_portion()
		:: skip
		fi;
		end_walk()
	:: census
	fi
}

inline reclaim(by_tick)
{
	if
	:: atomic { !census -> census = true };
		begin_walk();
		depot_age(!by_tick);
		if
		:: by_tick -> begin_departure()
		:: else
		fi;
		end_walk()
	:: census
	fi
}

/* reclaim_all, which waits for its turn. */
inline reclaim_all()
{
	atomic { !census -> census = true };
	begin_walk();
	depot_empty();
	end_walk()
}

inline tick()
{
	if
	:: follow_ebb()
	:: due -> see_off_next()
	:: skip
	fi;
	if
	:: reclaim(true)
	:: skip
	fi
}

/*
 * What was not needed since the last look leaves, and what waited then is not needed at the next.  Alone; and what is
 * left has each object once.
 */
inline settle(lost)
{
	reclaim(true);
	do
	:: due -> see_off_next()
	:: else -> break
	od;
	assert(head[LEAVING] == NONE);
	reclaim(true);
	do
	:: due -> see_off_next()
	:: else -> break
	od;
	assert(head[LEAVING] == NONE && head[FILLED] == NONE && empty_count <= (EMPTY_KEPT > 1 -> EMPTY_KEPT : 1));
	assert(in_slabs + used + going + lost == OBJECTS)
}

#define LOCALS											\
	byte emptied = NONE, rest = NONE, most = 0, cost = 0, drained = 0, limit = 0, unneeded = 0;	\
	byte i = 0, sum = 0, at = 0, total = 0;								\
	bool plenty = false

proctype thread(byte t)
{
	byte calls = 0;
	LOCALS;

	/* Nothing happens after a fork. */
	{
		do
		:: calls < CALLS ->
			calls++;
			if
			/* An allocation with nothing in hand, or an empty magazine. */
			:: hand[t] == NONE || count[hand[t]] == 0 ->
				tick();
				depot_take_filled();
				if
				:: hand[t] == NONE -> depot_take_empty()
				:: else
				fi;
				/* A refill, and the object that was asked for. */
				atomic {
					if
					:: hand[t] != NONE && count[hand[t]] == 0 && in_slabs > 0 ->
						in_slabs--;
						count[hand[t]] = 1
					:: else
					fi
				}
				atomic {
					if
					:: hand[t] != NONE && count[hand[t]] > 0 -> count[hand[t]] = 0; used++
					:: else
					fi
				}
			/* A free with nothing in hand, or a full magazine. */
			:: atomic { used > 0 && (hand[t] == NONE || count[hand[t]] > 0) -> used--; going++ }
				tick();
				depot_take_empty();
				atomic {
					if
					:: hand[t] != NONE -> count[hand[t]] = 1
					:: else -> in_slabs++
					fi;
					going--
				}
			/* Whoever empties a word. */
			:: hand[t] != NONE -> depot_put()
			:: tick()
			:: reclaim(false)
			:: reclaim_all()
			fi
		:: else -> break
		od;
		if
		:: hand[t] != NONE -> depot_put()
		:: else
		fi;
		finished++;
#if FORK
		forked
#else
		if
		:: t == 0 -> finished == THREADS; settle(0)
		:: t > 0
		fi
#endif
	} unless { forked }
}

#if FORK
/* magazine_repair and depot_repair, of a depot whose lock was held. */
inline repair()
{
#ifndef PLANT_HELD
	census = false;
#endif
	walkers = 0;
	if
	:: locked ->
		locked = false;
		filled_low = 0;
#ifndef PLANT_UNREPAIRED
		d_step {
			walk_stack(LEAVING);
			leaving_objects = sum;
			walk_stack(FILLED);
			objects = leaving_objects + sum;
			filled_count = i;
			walk_stack(EMPTY);
			empty_count = i;
			i = 0; sum = 0; at = 0
		}
#endif
	:: else
	fi;
	consistent()
}

/* The objects of magazines that no stack has: a thread of the parent had each in hand. */
inline count_lost()
{
	d_step {
		do
		:: i < MAGAZINES -> is_known[i] = gone[i]; i++
		:: else -> break
		od;
		for (i : FILLED .. LEAVING) {
			at = head[i];
			do
			:: at == NONE -> break
			:: else -> assert(!is_known[at]); is_known[at] = true; at = next[at]
			od
		}
		for (i : 0 .. MAGAZINES - 1) {
			if
			:: !is_known[i] && count[i] > 0 ->
				lost = lost + count[i];
				sum = 0;
				for (at : 0 .. THREADS - 1) {
					/* No more than two of each thread, one of which it drains or moves. */
					sum = sum + (hand[at] == i || (out[at] == i && got[at] != i) ||
						     (got[at] == i && out[at] == NONE) -> 1 : 0)
				}
				assert(sum == 1)
			:: else
			fi
		}
		i = 0; sum = 0; at = 0
	}
}

proctype fork()
{
	forked = true
}

proctype child()
{
	byte t = THREADS, lost = 0;
	bool is_known[MAGAZINES];
	LOCALS;

	forked;
	repair();
	count_lost();
	settle(lost)
}
#endif

init
{
	byte m = 0;

	atomic {
		do
		:: m < WAITING ->
			gone[m] = false;
			count[m] = 1;
			next[m] = head[FILLED];
			head[FILLED] = m;
			m++
		:: else -> break
		od;
		filled_count = WAITING;
		filled_low = WAITING;
		objects = WAITING;
		in_slabs = OBJECTS - WAITING;
		m = 0;
		do
		:: m < THREADS -> run thread(m); m++
		:: else -> break
		od;
#if FORK
		run fork();
		run child()
#endif
	}
}
