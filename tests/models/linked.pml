/* SPDX-License-Identifier: MIT */
/*
 * A model of the linked engine's slow paths, for spin.  It mirrors
 *
 *   src/linked/linked.c    read_state, replace_state, freeze, acquire, refill, leave_full, find_objects, thaw,
 *                          linked_put_back, linked_alloc_several, free_to_slab, linked_release_empty
 *   src/linked/front.h     front_take, front_install
 *   src/linked/census.c    empty_word, linked_shrink
 *
 * Each thread has a word of its own, which its sections change in one step (what makes that true of a vCPU is
 * magazine.pml's matter); shrinking takes the other's words too, in one step, as closing the vCPU makes it.  The
 * 16 bytes of a slab's state are read in two steps and exchanged in one.
 *
 *   THREADS (2)  CALLS of each, to alloc, free or shrink (3)  SLABS (2)  OBJECTS of a slab (2)
 *   FULL  1: at the start there is one slab already, of which the program has all objects (0)
 *   MIN_PARTIAL  empty slabs are given up where the list has so many (0)
 *
 * Each of these leaves one rule out, and must be found wanting:
 *   PLANT_LATE_LOCK    free_to_slab exchanges the state first and takes the lock for the list afterwards
 *   PLANT_LEAVE_FULL   leave_full thaws without looking at what was freed meanwhile
 *   PLANT_STORE        freeze stores the state instead of exchanging it
 *   PLANT_LIST_ALONE   the exchange compares the list, but not the counts beside it
 *   PLANT_NO_THAW      what shrinking takes off a word goes back to its slab, which stays frozen
 *
 * Checked: no object is handed out twice, or out of a slab that was given up; counts are never below what they
 * count; in the end each slab is on one word (frozen), in the list (with a free object), full, or given up, and
 * its free objects are all in its lists.
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
#ifndef FULL
#define FULL 0
#endif
#ifndef MIN_PARTIAL
#define MIN_PARTIAL 0
#endif

#define ALL		(SLABS * OBJECTS)
#define VOID		255
#define NONE		255
#define end_of(s)	(100 + (s))	/* a list of slab s that is empty */
#define is_end(l)	((l) >= 100)
#define slab_of(l)	((l) >= 100 -> (l) - 100 : (l) / OBJECTS)

mtype = { FREE, GOING, USED };

typedef state_of {
	byte list;
	byte in_use;
	bool frozen
};
state_of slab[SLABS];
byte threaded[SLABS];		/* changes with the state; only the slab's owner changes it */
bool released[SLABS] = true;	/* nobody's: no slab yet, or given up */
bool listed[SLABS];
byte partial;
bool locked;

byte word[THREADS] = VOID;
byte link[ALL];
mtype state[ALL] = FREE;
byte finished;

#define lock()		atomic { !locked -> locked = true }
#define unlock()	locked = false

inline read_state(s)
{
	d_step { assert(!released[s]); old_in_use = slab[s].in_use; old_frozen = slab[s].frozen }
	d_step { assert(!released[s]); old_list = slab[s].list }
}

#ifdef PLANT_LIST_ALONE
#define same(s)	(slab[s].list == old_list)
#else
#define same(s)	(slab[s].list == old_list && slab[s].in_use == old_in_use && slab[s].frozen == old_frozen)
#endif

/* `done` tells whether it stored. */
inline replace_state(s, new_list, new_in_use, new_frozen)
{
	atomic {
		assert(!released[s]);
		done = same(s);
		if
		:: done -> slab[s].list = new_list; slab[s].in_use = new_in_use; slab[s].frozen = new_frozen
		:: else
		fi
	}
}

/* With the lock. */
inline enlist(s)
{
	d_step { assert(!listed[s] && !released[s]); listed[s] = true; partial++ }
}

inline delist(s)
{
	d_step { assert(listed[s]); listed[s] = false; partial-- }
}

inline give_up(s)
{
	d_step { assert(!listed[s] && slab[s].in_use == 0); released[s] = true }
}

/* A partial slab into an empty hand, or a new one. */
inline acquire()
{
	lock();
	atomic {
		hand = 0;
		do
		:: hand < SLABS && !listed[hand] -> hand++
		:: else -> break
		od;
		if
		:: hand < SLABS -> delist(hand)
		:: else -> hand = NONE
		fi
	}
	if
	:: hand != NONE ->
		do
		:: read_state(hand);
#ifdef PLANT_STORE
			atomic { slab[hand].list = end_of(hand); slab[hand].in_use = threaded[hand]; slab[hand].frozen = true; done = true }
#else
			replace_state(hand, end_of(hand), threaded[hand], true);
#endif
			if
			:: done -> break
			:: else
			fi
		od;
		list = old_list
	:: else ->
		atomic {
			hand = 0;
			do
			:: hand < SLABS && !released[hand] -> hand++
			:: else -> break
			od;
			if
			:: hand == SLABS -> hand = NONE
			:: else ->
				released[hand] = false;
				slab[hand].list = end_of(hand);
				slab[hand].in_use = 0;
				slab[hand].frozen = true;
				threaded[hand] = 0;
				list = end_of(hand)
			fi
		}
	fi;
	unlock()
}

/* Objects that others have freed into the slab in hand, else one that was never linked; `done` if there are. */
inline refill()
{
	do
	:: read_state(hand);
		if
		:: is_end(old_list) && threaded[hand] == OBJECTS -> done = false; break
		:: is_end(old_list) && threaded[hand] < OBJECTS ->
			object = hand * OBJECTS + threaded[hand];
			link[object] = end_of(hand);
			list = object;
			do
			:: read_state(hand);
				replace_state(hand, old_list, old_in_use + 1, old_frozen);
				if
				:: done -> threaded[hand]++; break
				:: else
				fi
			od;
			break
		:: else ->
			replace_state(hand, end_of(hand), threaded[hand], true);
			if
			:: done -> list = old_list; break
			:: else
			fi
		fi
	od
}

inline leave_full()
{
	do
	:: read_state(hand);
#ifndef PLANT_LEAVE_FULL
		if
		:: !is_end(old_list) -> done = false; break
		:: else
		fi;
#endif
		replace_state(hand, old_list, old_in_use, false);
		if
		:: done -> break
		:: else
		fi
	od
}

inline alloc()
{
	if
	:: d_step { word[t] != VOID && !is_end(word[t]) -> object = word[t]; word[t] = link[object] }
	:: atomic { word[t] == VOID || is_end(word[t]) -> list = word[t]; word[t] = VOID;
		hand = NONE;
		if
		:: list != VOID -> hand = slab_of(list)
		:: else
		fi };
		do
		:: if
			:: hand == NONE
			:: hand != NONE ->
				if
				:: !is_end(list) -> break
				:: else
				fi;
				refill();
				if
				:: done -> break
				:: else
				fi;
				leave_full();
				if
				:: !done -> goto again
				:: else
				fi
			fi;
			acquire();
			if
			:: hand == NONE -> break
			:: else
			fi;
again:			skip
		od;
		atomic {
			object = NONE;
			if
			:: hand != NONE -> object = list; list = link[object]
			:: else
			fi
		}
		if
		:: hand != NONE ->
			atomic {
				done = word[t] == VOID;
				if
				:: done -> word[t] = list; hand = NONE
				:: else
				fi
			}
			if
			:: !done -> put_back()
			:: else
			fi
		:: else
		fi
	fi
}

/* linked_put_back, of a hand with `list`. */
inline put_back()
{
	lock();
	atomic {
		count = 0;
		last = list;
		do
		:: !is_end(last) && !is_end(link[last]) -> count++; last = link[last]
		:: !is_end(last) && is_end(link[last]) -> count++; break
		:: is_end(last) -> break
		od
	}
	do
	:: read_state(hand);
		if
		:: count > 0 -> link[last] = old_list
		:: else
		fi;
		assert(old_in_use >= count);
		if
		:: count == 0 -> list = old_list
		:: else
		fi;
#ifdef PLANT_NO_THAW
		replace_state(hand, list, old_in_use - count, true);
#else
		replace_state(hand, list, old_in_use - count, false);
#endif
		if
		:: done -> break
		:: else
		fi
	od;
	if
	:: old_in_use == count && partial >= MIN_PARTIAL -> give_up(hand)
	:: else ->
		if
		:: old_in_use - count < OBJECTS -> enlist(hand)
		:: else
		fi
	fi;
	unlock();
	hand = NONE;
	d_step { list = 0; last = 0; count = 0 }
}

inline free_to_slab()
{
	d_step { hand = object / OBJECTS; done = false; was_full = false; drained = false }
	do
	:: read_state(hand);
		assert(old_list != object && old_in_use >= 1);
		link[object] = old_list;
		was_full = !old_frozen && old_in_use == OBJECTS;
		drained = !old_frozen && old_in_use == 1;
#ifndef PLANT_LATE_LOCK
		if
		:: !holds && (was_full || drained) -> lock(); holds = true
		:: else
		fi;
#endif
		atomic {
			assert(!released[hand]);
			done = same(hand);
			if
			:: done ->
				slab[hand].list = object;
				slab[hand].in_use = old_in_use - 1;
				slab[hand].frozen = old_frozen;
				state[object] = FREE;
				break
			:: else
			fi
		}
	od;
#ifdef PLANT_LATE_LOCK
	if
	:: was_full || drained -> lock(); holds = true
	:: else
	fi;
#endif
	if
	:: holds ->
		if
		:: drained && partial >= MIN_PARTIAL ->
			if
			:: !was_full -> delist(hand)
			:: else
			fi;
			give_up(hand)
		:: else ->
			if
			:: was_full -> enlist(hand)
			:: else
			fi
		fi;
		holds = false;
		unlock()
	:: else
	fi;
	d_step { hand = NONE; done = false; was_full = false; drained = false }
}

inline give()
{
	if
	:: d_step { word[t] != VOID && slab_of(word[t]) == object / OBJECTS ->
		link[object] = word[t]; word[t] = object; state[object] = FREE }
	:: else -> free_to_slab()
	fi
}

/* linked_shrink: every word, and then the empty slabs. */
inline shrink()
{
	other = 0;
	do
	:: other < THREADS ->
		atomic {
			list = word[other];
			word[other] = VOID;
			hand = NONE;
			if
			:: list != VOID -> hand = slab_of(list)
			:: else
			fi
		}
		if
		:: hand != NONE -> put_back()
		:: else
		fi;
		other++
	:: else -> other = 0; break
	od;
	lock();
	atomic {
		do
		:: other < SLABS ->
			if
			:: listed[other] && slab[other].in_use == 0 -> delist(other); give_up(other)
			:: else
			fi;
			other++
		:: else -> other = 0; break
		od
	}
	unlock()
}

/* When all is quiet. */
inline check()
{
	for (hand : 0 .. SLABS - 1) {
		count = 0;
		if
		:: released[hand] -> assert(!listed[hand])
		:: else ->
			/* Its own list. */
			list = slab[hand].list;
			do
			:: is_end(list) -> break
			:: else -> assert(state[list] == FREE); count++; list = link[list]; assert(count <= OBJECTS)
			od;
			assert(slab[hand].in_use == threaded[hand] - count);
			/* A word's. */
			done = false;
			for (other : 0 .. THREADS - 1) {
				if
				:: word[other] != VOID && slab_of(word[other]) == hand ->
					assert(!done && slab[hand].frozen && !listed[hand]);
					done = true;
					list = word[other];
					do
					:: is_end(list) -> break
					:: else -> assert(state[list] == FREE); count++; list = link[list]; assert(count <= OBJECTS)
					od
				:: else
				fi
			}
			assert(done == slab[hand].frozen);
			assert(done || listed[hand] == (slab[hand].in_use < OBJECTS));
			/* All others are the program's. */
			last = 0;
			for (other : 0 .. OBJECTS - 1) {
				last = last + (state[hand * OBJECTS + other] == USED -> 1 : 0)
			}
			assert(threaded[hand] == count + last)
		fi
	}
}

proctype thread(byte t)
{
	byte calls = 0, hand = NONE, list = 0, object = NONE, last = 0, count = 0, other = 0;
	byte old_list = 0, old_in_use = 0;
	bool old_frozen = false, done = false, holds = false, was_full = false, drained = false;

	do
	:: calls < CALLS ->
		calls++;
		if
		:: alloc();
			d_step {
				if
				:: object != NONE -> assert(state[object] == FREE); state[object] = USED
				:: else
				fi;
				object = NONE
			}
		:: atomic {
			/* An object that any thread has allocated. */
			object = 0;
			do
			:: object < ALL && state[object] != USED -> object++
			:: object < ALL && state[object] == USED -> break
			:: object < ALL && state[object] == USED -> object++
			:: object == ALL -> break
			od;
			if
			:: object < ALL -> state[object] = GOING
			:: else -> object = NONE
			fi
			};
			if
			:: object != NONE -> give()
			:: else
			fi;
			object = NONE
		:: shrink()
		fi;
		atomic { list = 0; hand = NONE; old_list = 0; old_in_use = 0; old_frozen = false; done = false }
	:: else -> break
	od;
	atomic {
		finished++;
		if
		:: finished == THREADS -> check()
		:: else
		fi
	}
}

init
{
	byte i;

	atomic {
#if FULL
		released[0] = false;
		threaded[0] = OBJECTS;
		slab[0].list = end_of(0);
		slab[0].in_use = OBJECTS;
		for (i : 0 .. OBJECTS - 1) {
			state[i] = USED
		}
#endif
		i = 0;
		do
		:: i < THREADS -> run thread(i); i++
		:: else -> break
		od
	}
}
