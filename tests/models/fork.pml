/* SPDX-License-Identifier: MIT */
/*
 * A model of fork at any instant, for spin.  It mirrors
 *
 *   src/process/process.c       process_settle, process_enter: the word that the kernel wipes
 *   src/slab/slab.c, state.h    take, mark_free, settle; slab_link_free, slab_begin_unlocked
 *   src/slab/repair.c           slab_repair_begin, slab_repair_pages, repair_slab
 *   src/magazine/words.c        words_take, words_install (words.h), words_empty
 *   src/malloc/rooms.c          the order of repairs
 *   src/depot/depot.c           stack_push, stack_pop, depot_repair
 *
 * A thread of the parent takes objects from a slab and gives them back, by way of a magazine, and each of its
 * stores is a step.  The fork may come between any two: then it is gone, and what it had locked stays locked.
 * Two threads of the child come to the slow path at once; one repairs, the other waits for it.  Then they look
 * at everything, allocate all there is and free all of it.
 *
 *   OBJECTS of the slab (2)  CALLS of the parent's thread (3)
 *   AGAIN  1: a third thread of the child had begun to repair, and those two are a child's of its own, of another
 *          fork in between (0)
 *
 * Each of these leaves one rule out, and must be found wanting:
 *   PLANT_FREE       an object is marked free in its slab before its magazine is taken off the word
 *   PLANT_WORD       a magazine is put in its new place before it is taken from the old one
 *   PLANT_NO_REPAIR  the child takes lists and counts as they are
 *   PLANT_NO_RESET   the child leaves the lock as it is
 *   PLANT_NO_WAIT    a thread of the child goes ahead while another one repairs
 *   PLANT_BOTH       both of the child's threads repair
 *   PLANT_UNLOCKED   a free that takes its slab's lock alone does not say that it is under way
 * and with AGAIN:
 *   PLANT_UNFINISHED a child of a child that has not finished its repair goes by the locks, too
 *
 * Checked in the child: nobody waits for ever; no object is handed out twice, and none that the program had; the
 * slab's list and counts are what its marks say; and there are never more objects than there were.
 */
#ifndef OBJECTS
#define OBJECTS 2
#endif
#ifndef CALLS
#define CALLS 3
#endif

#define NO_INDEX	255
#define NOTHING		255
#define ALLOCATED	100	/* a mark in next[]; else the next free object, or the object itself at the end */
#define GARBAGE		50	/* what memory that nobody has written holds */

#ifndef AGAIN
#define AGAIN 0
#endif

mtype = { ZERO, SETTLING, ALIVE };
mtype alive = ALIVE;
bool forked, again;
bool locked, own;	/* the cache, and the slab's own lock, which comes before it */
bool unlocked, unfinished;

/* The slab: next[] and bump are the truth. */
byte next[OBJECTS] = GARBAGE;
byte bump, head = NO_INDEX, in_use;
bool listed = true;

/* The one magazine, of one slot: on the word, in the depot, or in a hand. */
byte slot = NOTHING;
bool on_word, in_depot = true;

bool used[OBJECTS];	/* the program's, as far as the parent had come */
byte settled, done_count;

#define lock()		atomic { !locked -> locked = true }
#define unlock()	locked = false
#define lock_slab()	atomic { !own -> own = true }
#define unlock_slab()	own = false

/* With the lock. */
#define link_free(i)	next[i] = (head == NO_INDEX -> i : head); head = i

/* One object of the slab into `object`. */
inline take()
{
	object = NOTHING;
	if
	:: head != NO_INDEX ->
		object = head;
		head = (next[object] == object -> NO_INDEX : next[object]);
		next[object] = ALLOCATED;
		in_use++
	:: head == NO_INDEX && bump < OBJECTS ->
		object = bump;
		next[object] = ALLOCATED;
		bump++;
		in_use++
	:: else
	fi;
	listed = in_use < OBJECTS
}

/* The magazine goes from the depot to the word with an object in it, or back. */
inline load()
{
	lock();
	lock_slab();
	take();
	unlock_slab();
	unlock();
	if
	:: object != NOTHING ->
#ifdef PLANT_WORD
		slot = object;
		on_word = true;
		in_depot = false
#else
		in_depot = false;
		slot = object;
		on_word = true
#endif
	:: else
	fi
}

inline unload()
{
#ifdef PLANT_WORD
	in_depot = true;
#endif
#ifndef PLANT_FREE
	on_word = false;
#endif
	object = slot;
	if
	:: object != NOTHING ->
#ifndef PLANT_UNLOCKED
		unlocked = true;
#endif
		lock_slab();
		link_free(object);
		in_use--;
		if
		:: !listed -> lock(); listed = true; unlock()
		:: else
		fi;
		unlock_slab();
		unlocked = false
	:: else
	fi;
	on_word = false;
	slot = NOTHING;
	in_depot = true
}

active proctype parent()
{
	byte calls = 0, object = NOTHING;

	/* Nothing happens after the fork. */
	{
		do
		:: calls < CALLS ->
			calls++;
			if
			:: in_depot -> load()
			:: on_word -> unload()
			/* The fast paths, in whose commit one store moves the object. */
			:: atomic { on_word && slot != NOTHING -> used[slot] = true; slot = NOTHING }
			:: atomic { on_word && slot == NOTHING && used[0] -> used[0] = false; slot = 0 }
			fi
		:: else -> break
		od;
		forked
	} unless { forked }
}

active proctype fork()
{
	atomic { forked = true; alive = ZERO }
#if AGAIN
	atomic { again = true; alive = ZERO }
#endif
}

/* A glance at a slab in which nothing is under way. */
inline consistent()
{
	n = 0;
	for (i : 0 .. OBJECTS - 1) {
		n = n + ((i < bump && next[i] == ALLOCATED) -> 1 : 0);
		/* What the program has is marked, and on no word. */
		assert(!used[i] || (i < bump && next[i] == ALLOCATED));
		assert(!used[i] || !((on_word || in_depot) && slot == i));
		/* So is what is in a magazine that anyone can reach. */
		assert(!((on_word || in_depot) && slot == i) || (i < bump && next[i] == ALLOCATED))
	}
	assert(!(on_word && in_depot));
	assert(in_use == n);
	assert(listed == (in_use < OBJECTS));
	/* The list has what is free below bump, once. */
	m = head;
	do
	:: m == NO_INDEX -> break
	:: else ->
		assert(m < bump && next[m] != ALLOCATED && n < OBJECTS);
		n++;
		m = (next[m] == m -> NO_INDEX : next[m])
	od;
	assert(n == bump);
	m = 0; n = 0; i = 0
}

/* magazine_repair: slab_repair_begin, and repair_slab for what it forgets. */
inline repair()
{
#ifdef PLANT_UNFINISHED
	all = false;
#else
	all = unfinished;
#endif
	unfinished = true;
	if
	:: locked || unlocked || all ->
#ifndef PLANT_NO_RESET
		unlocked = false;
		locked = false;
#endif
#ifndef PLANT_NO_REPAIR
		listed = false;
		own = false;
		head = NO_INDEX;
		in_use = 0;
		i = bump;
		do
		:: i > 0 ->
			i--;
			if
			:: next[i] == ALLOCATED -> in_use++
			:: else ->
				next[i] = (head == NO_INDEX -> i : head);
				head = i
			fi
		:: else -> break
		od;
		listed = in_use < OBJECTS
#else
		own = false
#endif
	:: else
	fi;
	unfinished = false
}

#if AGAIN
active proctype repairer()
{
	byte i = 0;
	bool all = false;

	forked;
	{ repair(); again } unless { again }
}
#endif

active [2] proctype child()
{
	byte object = NOTHING, i = 0, n = 0, m = 0;
	bool first = false, all = false;

#if AGAIN
	again;
#else
	forked;
#endif
	/* process_settle */
#ifdef PLANT_BOTH
	first = alive == ZERO;
	if
	:: first -> alive = SETTLING
	:: else
	fi;
#else
	atomic { first = alive == ZERO; alive = (first -> SETTLING : alive) }
#endif
	if
	:: first -> settled++; assert(settled == 1); repair(); alive = ALIVE
	:: else ->
#ifndef PLANT_NO_WAIT
		alive == ALIVE
#endif
	fi;
	/* From here on each does all it does under the lock. */
	atomic { !locked && !own -> locked = true }
	atomic {
		assert(alive == ALIVE);
		consistent();
		do
		:: head != NO_INDEX ->
			object = head;
			head = (next[object] == object -> NO_INDEX : next[object]);
			next[object] = ALLOCATED;
			assert(!used[object]);
			used[object] = true;
			in_use++
		:: head == NO_INDEX && bump < OBJECTS ->
			object = bump;
			bump++;
			next[object] = ALLOCATED;
			assert(!used[object]);
			used[object] = true;
			in_use++
		:: else -> break
		od;
		listed = in_use < OBJECTS;
		consistent();
		locked = false;
		done_count++
	}
	/* Nobody waits for ever: both come here. */
	done_count == 2
}
