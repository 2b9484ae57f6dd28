/* SPDX-License-Identifier: MIT */
/*
 * A model of how magazines move between vCPUs, for spin.  It mirrors
 *
 *   src/arch/x86_64.h           arch_pop, arch_push, arch_peek, arch_replace
 *   src/magazine/magazine.c     take_word, install, take_spare, put_spare, filled_magazine, empty_words,
 *                               magazine_alloc_missed, magazine_free_missed
 *   src/vcpu/vcpu.c             vcpu_close, vcpu_reopen, vcpu_drain
 *
 * A section begins on any vCPU, and whoever was in a section there has been preempted.  It reads the table, the
 * word and the slot in steps, and ends in one step that commits, misses, or, after a preemption or a fence,
 * starts again, on any vCPU.  (A preemption that lets no other section onto the vCPU changes nothing.)  What
 * happens under the depot's lock is one step.  A drainer closes each vCPU in turn and empties it.
 *
 *   THREADS (2)  VCPUS (2)  CALLS of each thread, to alloc or free (1)  OBJECTS (2)  MAGAZINES (2)
 *   CAPACITY of a magazine (1)  DRAINS  rounds of the drainer (1)
 *
 * Each of these leaves one rule out, and must be found wanting:
 *   PLANT_NO_ABORT   the kernel does not send a preempted thread back to the start
 *   PLANT_NO_FENCE   the drainer goes ahead without a fence
 *   PLANT_TAKE       take_word stores VOID without looking whether the word is still what it read
 *   PLANT_INSTALL    install stores over whatever the word holds
 *   PLANT_SPARE      put_spare stores over whatever the spare's word holds
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

#define NONE	255	/* no object, no magazine, no vCPU */
#define VOID	254	/* words; else a magazine and how many objects lie below the top */
#define CLOSED	253
#define top_of(m, n)	((m) * (CAPACITY + 1) + (n))
#define magazine_of(w)	((w) / (CAPACITY + 1))
#define count_of(w)	((w) % (CAPACITY + 1))
#define slot(m, i)	slots[(m) * CAPACITY + (i)]

mtype = { FREE, GOING, USED };

byte front[2 * VCPUS];	/* each vCPU's word, and each one's spare */
bool closed[VCPUS];
byte on[THREADS] = NONE;	/* the vCPU that a thread is in a section on */
bool aborted[THREADS];

byte slots[MAGAZINES * CAPACITY];
byte count[MAGAZINES];		/* true in a hand, on a spare's word, in the depot */
bool waits[MAGAZINES] = true;	/* in the depot */
bool in_slab[OBJECTS] = true;
mtype state[OBJECTS] = FREE;
byte finished;

#define word(v)		front[v]
#define spare(v)	front[VCPUS + (v)]
#define WORDS		0
#define SPARES		VCPUS

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
	atomic { seen = (shut -> shut_value : front[what + id]) }
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
inline take_word()
{
	do
	:: peek(WORDS, CLOSED);
		if
		:: seen == VOID || seen == CLOSED -> break
		:: else
		fi;
#ifdef PLANT_TAKE
		atomic { word(id) = (closed[id] -> word(id) : VOID); done = true }
#else
		replace(WORDS, seen, VOID, CLOSED);
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

inline take_spare()
{
	do
	:: peek(SPARES, NONE);
		if
		:: seen == NONE -> break
		:: else
		fi;
		replace(SPARES, seen, NONE, CLOSED);
		if
		:: done -> break
		:: else
		fi
	od;
	atomic { other = seen; seen = 0; done = false }
}

inline put_spare(m)
{
#ifdef PLANT_SPARE
	select(id : 0 .. VCPUS - 1);
	atomic { !closed[id] -> spare(id) = m }
#else
	replace(SPARES, NONE, m, CLOSED);
	if
	:: done -> skip
	:: else -> depot_put(m)
	fi
#endif
}

inline install(m)
{
#ifdef PLANT_INSTALL
	select(id : 0 .. VCPUS - 1);
	atomic { !closed[id] -> word(id) = top_of(m, count[m]) }
#else
	replace(WORDS, VOID, top_of(m, count[m]), CLOSED);
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
		seen = (shut -> CLOSED : word(id));
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
			:: !aborted[t] && object != NONE -> word(id) = seen - 1; break
			:: else -> break
			fi
		}
	od;
	atomic { on[t] = NONE; id = 0; seen = 0; shut = false }
	if
	:: object != NONE
	:: else ->
		take_word();
		if
		:: was_closed -> atomic { from_slab(object) }
		:: else ->
			if
			:: hand != NONE && count[hand] > 0
			:: else ->
				take_spare();
				if
				:: other != NONE && count[other] > 0 ->
					if
					:: hand != NONE -> put_spare(hand)
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
						:: hand != NONE -> put_spare(hand)
						:: else
						fi;
						hand = filled
					:: else ->
						if
						:: hand != NONE && other != NONE -> put_spare(other)
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
				install(hand)
			:: else
			fi
		fi
	fi;
	d_step { hand = NONE; other = NONE; filled = NONE; was_closed = false; done = false }
}

inline give()
{
	/* arch_push */
	do
	:: begin();
		seen = (shut -> CLOSED : word(id));
		atomic {
			if
			:: aborted[t]
			:: !aborted[t] && seen != VOID && seen != CLOSED && count_of(seen) < CAPACITY ->
				slot(magazine_of(seen), count_of(seen)) = object;
				word(id) = seen + 1;
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
		take_word();
		if
		:: was_closed -> atomic { in_slab[object] = true; state[object] = FREE }
		:: else ->
			if
			:: hand != NONE && count[hand] < CAPACITY
			:: else ->
				take_spare();
				if
				:: other != NONE && count[other] == 0 ->
					if
					:: hand != NONE -> put_spare(hand)
					:: else
					fi;
					hand = other
				:: else ->
					atomic {
						if
						:: hand != NONE && other != NONE -> waits[other] = true; other = NONE
						:: else
						fi;
						find(filled, false)
					}
					if
					:: hand == NONE -> hand = other
					:: else
					fi;
					if
					:: hand != NONE -> put_spare(hand)
					:: else
					fi;
					hand = filled
				fi
			fi;
			if
			:: hand != NONE ->
				d_step { slot(hand, count[hand]) = object; count[hand]++; state[object] = FREE }
				install(hand)
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

proctype drainer()
{
	byte round = 0, v = 0, seen = 0, i = 0;

	do
	:: round < DRAINS && v < VCPUS ->
		closed[v] = true;
#ifndef PLANT_NO_FENCE
		d_step {
			i = 0;
			do
			:: i < THREADS -> aborted[i] = true; i++
			:: else -> break
			od;
			i = 0
		}
#endif
		seen = word(v);
		if
		:: seen != VOID ->
			d_step { count[magazine_of(seen)] = count_of(seen) }
			word(v) = VOID;
			depot_put(magazine_of(seen))
		:: else
		fi;
		seen = spare(v);
		if
		:: seen != NONE -> spare(v) = NONE; depot_put(seen)
		:: else
		fi;
		d_step { seen = 0; closed[v] = false; v++ }
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
			word(i) = VOID;
			spare(i) = NONE
		}
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
			for (i : 0 .. VCPUS - 1) {
				places = places + (spare(i) == m -> 1 : 0);
				if
				:: word(i) != VOID && magazine_of(word(i)) == m ->
					places++;
					count[m] = count_of(word(i))
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
