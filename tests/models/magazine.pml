/* SPDX-License-Identifier: MIT */
/*
 * A model of how magazines move between vCPUs, for spin.  It mirrors
 *
 *   src/arch/x86_64.h           arch_pop, arch_push, arch_peek, arch_replace
 *   src/magazine/words.c        words_take, words_take_spare, words_put_spare, words_empty; in words.h
 *                               words_install_at
 *   src/magazine/magazine.c     filled_magazine, magazine_alloc_requested, magazine_free_missed, dissolve; of
 *                               hardened caches trade_waiting, magazine_return_missed
 *   src/vcpu/vcpu.c             close_areas, vcpu_close, vcpu_reopen, vcpu_drain
 *
 * A section begins on any vCPU, and whoever was in a section there has been preempted.  It reads the table, the
 * word and the slot in steps, and ends in one step that commits, misses, or, after a preemption or a fence,
 * starts again, on any vCPU.  (A preemption that lets no other section onto the vCPU changes nothing.)  What
 * happens under the depot's lock is one step.  A drainer closes vCPUs, some at once, and empties one after the
 * other.
 *
 *   THREADS (2)  VCPUS (2)  CALLS of each thread, to alloc or free (1)  OBJECTS (2)  MAGAZINES (2)
 *   CAPACITY of a magazine (1)  DRAINS  rounds of the drainer (1)
 *   TOGETHER  vCPUs that it closes by one fence, as vcpu_drain does; 1 is vcpu_close (2)
 *   ALONE  1: frees may go past the words, as they do in an ebb (0)
 *   RETURNS  1: a hardened cache, whose frees go onto words of their own, as it is after some of them; from 3
 *            objects and 4 magazines on (0)
 *
 *   HINDER  1: a section that is aborted may end as a miss, and until some later call its thread then does without
 *           words (0)
 *
 * Each of these leaves one rule out, and must be found wanting:
 *   PLANT_NO_ABORT   the kernel does not send a preempted thread back to the start
 *   PLANT_NO_FENCE   the drainer goes ahead without a fence
 *   PLANT_FENCE      the fence comes when the first vCPU is closed, and the others are closed after it
 *   PLANT_TAKE       take_word stores VOID without looking whether the word is still what it read
 *   PLANT_INSTALL    install stores over whatever the word holds
 *   PLANT_SPARE      put_spare stores over whatever the spare's word holds
 * and with ALONE, RETURNS and HINDER:
 *   PLANT_DISSOLVE   magazine_free_missed gives the objects of the spare to the slabs before it has taken it
 *   PLANT_TRADE      trade_waiting does not take the spare that it gets in return off its word
 *
 *   PLANT_HINDERED   what a replacement was to take counts as taken although it was aborted too often
 *
 * Checked: no object is handed out twice; in the end each object is in one place: the program's, a slab's, or
 * one slot of one magazine; and each magazine is on one word, or one spare's, or in the depot.
 */
#ifndef THREADS
#define THREADS 2
#endif
#ifndef VCPUS
#define VCPUS 2
#endif
#ifndef CALLS
#define CALLS 1
#endif
#ifndef OBJECTS
#define OBJECTS 2
#endif
#ifndef MAGAZINES
#define MAGAZINES 2
#endif
#ifndef CAPACITY
#define CAPACITY 1
#endif
#ifndef DRAINS
#define DRAINS 1
#endif
#ifndef TOGETHER
#define TOGETHER 2
#endif
#ifndef ALONE
#define ALONE 0
#endif
#ifndef RETURNS
#define RETURNS 0
#endif
#ifndef HINDER
#define HINDER 0
#endif

#define NONE	255	/* no object, no magazine, no vCPU */
#define VOID	254	/* words; else a magazine and how many objects lie below the top */
#define CLOSED	253
#define top_of(m, n)	((m) * (CAPACITY + 1) + (n))
#define magazine_of(w)	((w) / (CAPACITY + 1))
#define count_of(w)	((w) % (CAPACITY + 1))
#define slot(m, i)	slots[(m) * CAPACITY + (i)]

mtype = { FREE, GOING, USED };

/* Rows of words, of each vCPU: what is allocated from and freed to, and its spare; a hardened cache has two. */
#define WORDS		0
#define SPARES		VCPUS
#if RETURNS
#define RETURNED	(2 * VCPUS)
#define ROWS		4
#else
#define RETURNED	WORDS
#define ROWS		2
#endif
byte front[ROWS * VCPUS];
bool closed[VCPUS];
byte on[THREADS] = NONE;	/* the vCPU that a thread is in a section on */
bool aborted[THREADS];
bool hindered[THREADS];

byte slots[MAGAZINES * CAPACITY];
byte count[MAGAZINES];		/* true in a hand, on a spare's word, in the depot */
bool waits[MAGAZINES] = true;	/* in the depot */
bool in_slab[OBJECTS] = true;
mtype state[OBJECTS] = FREE;
byte finished;

#define spare_of(row)	((row) + VCPUS)

inline begin()
{
	atomic {
		select(id : 0 .. VCPUS - 1);
		aborted[t] = false;
		on[t] = id;
		/* Whoever else was there is preempted. */
		u = 0;
		do
		:: u < THREADS ->
			if
			:: u != t && on[u] == id ->
				on[u] = NONE;
#ifndef PLANT_NO_ABORT
				aborted[u] = true
#endif
			:: else
			fi;
			u++
		:: else -> u = 0; break
		od
	}
	shut = closed[id]
}

/* The thread's id and word as they were at some instant. */
inline peek(what, shut_value)
{
	select(id : 0 .. VCPUS - 1);
	shut = closed[id];
	atomic { seen = (shut || hindered[t] -> shut_value : front[what + id]) }
}

/* arch_replace: `done` tells whether it stored. */
inline replace(what, expected, desired, shut_value)
{
	do
	:: begin();
		seen2 = (shut -> shut_value : front[what + id]);
		atomic {
			if
			:: aborted[t]
#if HINDER
#ifdef PLANT_HINDERED
			:: aborted[t] -> hindered[t] = true; done = true; break
#else
			:: aborted[t] -> hindered[t] = true; done = false; break
#endif
#endif
			:: !aborted[t] && seen2 == expected -> front[what + id] = desired; done = true; break
			:: else -> done = false; break
			fi
		}
	od;
	atomic { on[t] = NONE; seen2 = 0; id = 0; shut = false }
}

inline depot_put(m)
{
	atomic { assert(!waits[m]); waits[m] = true }
}

/* `hand` is the magazine that was on the word, NONE for none; `was_closed` that there is no word. */
inline take_word(row)
{
	do
	:: peek(row, CLOSED);
		if
		:: seen == VOID || seen == CLOSED -> break
		:: else
		fi;
#ifdef PLANT_TAKE
		atomic { front[row + id] = (closed[id] -> front[row + id] : VOID); done = true }
#else
		replace(row, seen, VOID, CLOSED);
#endif
		if
		:: done -> break
		:: else
		fi
	od;
	atomic {
		was_closed = seen == CLOSED;
		hand = NONE;
		if
		:: seen != VOID && seen != CLOSED -> hand = magazine_of(seen); count[hand] = count_of(seen)
		:: else
		fi;
		seen = 0; done = false
	}
}

inline take_spare(row, m)
{
	do
	:: peek(spare_of(row), NONE);
		if
		:: seen == NONE -> break
		:: else
		fi;
		replace(spare_of(row), seen, NONE, CLOSED);
		if
		:: done -> break
		:: else
		fi
	od;
	atomic { m = seen; seen = 0; done = false }
}

inline put_spare(row, m)
{
#ifdef PLANT_SPARE
	select(id : 0 .. VCPUS - 1);
	atomic { !closed[id] -> front[spare_of(row) + id] = m }
#else
	replace(spare_of(row), NONE, m, CLOSED);
	if
	:: done -> skip
	:: else -> depot_put(m)
	fi
#endif
}

inline install(row, m)
{
#ifdef PLANT_INSTALL
	select(id : 0 .. VCPUS - 1);
	atomic { !closed[id] -> front[row + id] = top_of(m, count[m]) }
#else
	replace(row, VOID, top_of(m, count[m]), CLOSED);
	if
	:: done -> skip
	:: else -> depot_put(m)
	fi
#endif
}

/* With the depot's lock: a magazine that waits there, filled or empty. */
inline find(m, with_objects)
{
	m = 0;
	do
	:: m < MAGAZINES && !(waits[m] && (count[m] > 0) == with_objects) -> m++
	:: else -> break
	od;
	if
	:: m == MAGAZINES -> m = NONE
	:: else -> waits[m] = false
	fi
}

inline from_slab(o)
{
	o = 0;
	do
	:: o < OBJECTS && !in_slab[o] -> o++
	:: else -> break
	od;
	if
	:: o == OBJECTS -> o = NONE
	:: else -> in_slab[o] = false
	fi
}

inline alloc()
{
	/* arch_pop */
	do
	:: begin();
		seen = (shut -> CLOSED : front[WORDS + id]);
		d_step {
			object = NONE;
			if
			:: seen != VOID && seen != CLOSED && count_of(seen) > 0 ->
				object = slot(magazine_of(seen), count_of(seen) - 1)
			:: else
			fi
		}
		atomic {
			if
			:: aborted[t]
#if HINDER
			:: aborted[t] -> hindered[t] = true; object = NONE; break
#endif
			:: !aborted[t] && object != NONE -> front[WORDS + id] = seen - 1; break
			:: else -> break
			fi
		}
	od;
	atomic { on[t] = NONE; id = 0; seen = 0; shut = false }
	if
	:: object != NONE
	:: else ->
		take_word(WORDS);
		if
		:: was_closed -> atomic { from_slab(object) }
		:: else ->
			if
			:: hand != NONE && count[hand] > 0
			:: else ->
				take_spare(WORDS, other);
				if
				:: other != NONE && count[other] > 0 ->
					if
					:: hand != NONE -> put_spare(WORDS, hand)
					:: else
					fi;
					hand = other
				:: else ->
					/* filled_magazine: the depot takes the spare if there are two. */
					atomic {
						find(filled, true);
						if
						:: filled != NONE && hand != NONE && other != NONE ->
							waits[other] = true; other = NONE
						:: else
						fi
					}
					if
					:: filled != NONE ->
						if
						:: hand == NONE -> hand = other
						:: else
						fi;
						if
						:: hand != NONE -> put_spare(WORDS, hand)
						:: else
						fi;
						hand = filled
					:: else ->
						if
						:: hand != NONE && other != NONE -> put_spare(WORDS, other)
						:: hand == NONE && other != NONE -> hand = other
						:: hand == NONE && other == NONE -> atomic { find(hand, false) }
						:: else
						fi;
						if
						:: hand != NONE -> atomic {
							from_slab(object);
							if
							:: object != NONE -> slot(hand, 0) = object; count[hand] = 1
							:: else -> waits[hand] = true; hand = NONE
							fi;
							object = NONE
							}
						:: else -> atomic { from_slab(object) }
						fi
					fi
				fi
			fi;
			if
			:: hand != NONE ->
				d_step { object = slot(hand, count[hand] - 1); count[hand]-- }
				install(WORDS, hand)
			:: else
			fi
		fi
	fi;
	d_step { hand = NONE; other = NONE; filled = NONE; was_closed = false; done = false }
}

/* Its objects go to the slabs, and the block to the metadata, as good as an empty magazine that waits. */
inline dissolve(m)
{
	atomic {
		do
		:: count[m] > 0 -> count[m]--; in_slab[slot(m, count[m])] = true
		:: else -> break
		od;
		assert(!waits[m]);
		waits[m] = true;
		m = NONE
	}
}

/* depot_take_empty, into `filled`; `m` may be NONE. */
inline depot_take_empty(m)
{
	atomic {
		if
		:: m != NONE -> assert(!waits[m]); waits[m] = true; m = NONE
		:: else
		fi;
		find(filled, false)
	}
}

/* An empty magazine for frees, into `filled`, for `other`, the one that has waited. */
inline trade_waiting()
{
	if
	:: other != NONE ->
#ifdef PLANT_TRADE
		peek(spare_of(WORDS), NONE);
		atomic { filled = seen; seen = 0 }
#else
		take_spare(WORDS, filled);
#endif
		if
		:: filled != NONE && count[filled] == 0 -> put_spare(WORDS, other); other = NONE
		:: filled != NONE && count[filled] > 0 -> put_spare(WORDS, filled); filled = NONE
		:: else
		fi
	:: else
	fi;
	if
	:: filled == NONE -> depot_take_empty(other)
	:: else
	fi
}

/* Of an object whose free found no room: into `hand`, where it goes; NONE for the slabs. */
inline room_to_free()
{
#if RETURNS
	if
	:: hand != NONE && count[hand] < CAPACITY
	:: else ->
		take_spare(RETURNED, other);
		if
		:: hand != NONE -> put_spare(RETURNED, hand)
		:: else
		fi;
		trade_waiting();
		hand = filled
	fi
#else
	if
	:: hand != NONE && count[hand] < CAPACITY
#if ALONE
	:: hand == NONE
#endif
	:: hand == NONE || count[hand] == CAPACITY ->
#ifdef PLANT_DISSOLVE
		peek(spare_of(WORDS), NONE);
		atomic { other = seen; seen = 0 }
#else
		take_spare(WORDS, other);
#endif
		if
		:: other != NONE && count[other] == 0 ->
			if
			:: hand != NONE -> put_spare(WORDS, hand)
			:: else
			fi;
			hand = other
#if ALONE
		:: !(other != NONE && count[other] == 0) ->
			if
			:: hand != NONE -> dissolve(hand)
			:: else
			fi;
			if
			:: other != NONE -> dissolve(other)
			:: else
			fi
#endif
		:: !(other != NONE && count[other] == 0) ->
			if
			:: hand != NONE -> depot_take_empty(other)
			:: else -> find_empty()
			fi;
			if
			:: hand == NONE -> hand = other
			:: else
			fi;
			if
			:: hand != NONE -> put_spare(WORDS, hand)
			:: else
			fi;
			hand = filled
		fi
	fi
#endif
}

inline find_empty()
{
	atomic { find(filled, false) }
}

inline give()
{
	/* arch_push */
	do
	:: begin();
		seen = (shut -> CLOSED : front[RETURNED + id]);
		atomic {
			if
			:: aborted[t]
#if HINDER
			:: aborted[t] -> hindered[t] = true; done = false; break
#endif
			:: !aborted[t] && seen != VOID && seen != CLOSED && count_of(seen) < CAPACITY ->
				slot(magazine_of(seen), count_of(seen)) = object;
				front[RETURNED + id] = seen + 1;
				state[object] = FREE;
				done = true;
				break
			:: else -> done = false; break
			fi
		}
	od;
	atomic { on[t] = NONE; id = 0; seen = 0; shut = false }
	if
	:: done
	:: else ->
		take_word(RETURNED);
		if
		:: was_closed -> atomic { in_slab[object] = true; state[object] = FREE }
		:: else ->
			room_to_free();
			if
			:: hand != NONE ->
				d_step { slot(hand, count[hand]) = object; count[hand]++; state[object] = FREE }
				install(RETURNED, hand)
			:: else -> atomic { in_slab[object] = true; state[object] = FREE }
			fi
		fi
	fi;
	d_step { hand = NONE; other = NONE; filled = NONE; was_closed = false; done = false }
}

proctype thread(byte t)
{
	byte calls = 0, id = 0, seen = 0, seen2 = 0, u = 0, object = NONE, hand = NONE, other = NONE, filled = NONE;
	bool shut = false, done = false, was_closed = false;

	do
	:: calls < CALLS ->
		calls++;
#if HINDER
		/* The first section of a slow path ends, or does not. */
		if
		:: hindered[t] = false
		:: skip
		fi;
#endif
		if
		:: alloc();
			d_step {
				if
				:: object != NONE -> assert(state[object] == FREE); state[object] = USED
				:: else
				fi;
				object = NONE
			}
		/* An object that any thread has allocated. */
		:: atomic {
			state[0] == USED || state[OBJECTS - 1] == USED ->
				object = (state[0] == USED -> 0 : OBJECTS - 1);
				state[object] = GOING
			}
			give();
			object = NONE
		fi
	:: else -> break
	od;
	finished++
}

/* All sections that are under way start again. */
inline fence()
{
	d_step {
		i = 0;
		do
		:: i < THREADS -> aborted[i] = true; i++
		:: else -> break
		od;
		i = 0
	}
}

/* empty_words, of one pair of rows. */
inline empty_words(row)
{
	seen = front[row + v];
	if
	:: seen != VOID ->
		d_step { count[magazine_of(seen)] = count_of(seen) }
		front[row + v] = VOID;
		depot_put(magazine_of(seen))
	:: else
	fi;
	seen = front[spare_of(row) + v];
	if
	:: seen != NONE -> front[spare_of(row) + v] = NONE; depot_put(seen)
	:: else
	fi;
	seen = 0
}

proctype drainer()
{
	byte round = 0, v = 0, end = 0, seen = 0, i = 0;

	do
	:: round < DRAINS && v < VCPUS ->
		/* close_areas */
		end = v;
		do
		:: end < VCPUS && end < v + TOGETHER ->
			closed[end] = true;
#ifdef PLANT_FENCE
			if
			:: end == v -> fence()
			:: else
			fi;
#endif
			end++
		:: else -> break
		od;
#if !defined(PLANT_NO_FENCE) && !defined(PLANT_FENCE)
		fence();
#endif
		do
		:: v < end ->
			empty_words(WORDS);
#if RETURNS
			empty_words(RETURNED);
#endif
			d_step { closed[v] = false; v++ }
		:: else -> break
		od
	:: round < DRAINS && v == VCPUS -> v = 0; round++
	:: else -> break
	od;
	finished++
}

init
{
	byte i, places, m;

	atomic {
		/* The program has an object already. */
		in_slab[0] = false;
		state[0] = USED;
		for (i : 0 .. VCPUS - 1) {
			front[WORDS + i] = VOID;
			front[SPARES + i] = NONE;
			front[RETURNED + i] = VOID;
			front[spare_of(RETURNED) + i] = NONE
		}
#if RETURNS
		/* It has freed as much as it has allocated: one magazine is empty, one full, and one has waited. */
		waits[0] = false; waits[1] = false; waits[2] = false;
		front[SPARES] = 0;
		in_slab[1] = false; slot(1, 0) = 1; count[1] = 1;
		front[RETURNED] = top_of(1, 1);
		in_slab[2] = false; slot(2, 0) = 2; count[2] = 1;
		front[spare_of(RETURNED)] = 2;
#endif
		i = 0;
		do
		:: i < THREADS -> run thread(i); i++
		:: else -> break
		od;
		run drainer()
	}
	atomic {
		finished == THREADS + 1 ->
		/* Each magazine is in one place, */
		for (m : 0 .. MAGAZINES - 1) {
			places = (waits[m] -> 1 : 0);
			for (i : 0 .. ROWS * VCPUS - 1) {
				if
				:: i / VCPUS % 2 == 1 -> places = places + (front[i] == m -> 1 : 0)
				:: i / VCPUS % 2 == 0 && front[i] != VOID && magazine_of(front[i]) == m ->
					places++;
					count[m] = count_of(front[i])
				:: else
				fi
			}
			assert(places == 1)
		}
		/* and so is each object. */
		byte o;
		for (o : 0 .. OBJECTS - 1) {
			places = (state[o] == USED -> 1 : 0) + (in_slab[o] -> 1 : 0);
			for (m : 0 .. MAGAZINES - 1) {
				for (i : 0 .. CAPACITY - 1) {
					places = places + ((i < count[m] && slot(m, i) == o) -> 1 : 0)
				}
			}
			assert(places == 1)
		}
	}
}
