/* SPDX-License-Identifier: MIT */
#include "profile/profile.h"

#include <assert.h>
#include <string.h>

#include "check/unwind.h"
#include "os/os.h"
#include "profile/format.h"

struct profile_state profile;
ARCH_SPARSE struct profile_choice profile_choices[PROFILE_CHOICES];

/* ---- probabilities ------------------------------------------------------------------------------------- */

/* Returns the bound that a 64-bit random number is below with that probability; UINT64_MAX where it is 1. */
static uint64_t find_bound(size_t size, uint64_t interval)
{
	double probability = profile_probability(size, interval);

	return probability >= 1 ? UINT64_MAX : (uint64_t)(probability * 0x1p64);
}

/*
 * Caches bounds by size.  The first word is the key exclusive-or the bound, so that two threads that write
 * one word at a time leave an entry that fits no size.
 */
static uint64_t bound_of(size_t size, uint64_t interval)
{
	enum { BOUNDS = 128, STEP = 16 };
	static struct {
		uint64_t check, bound;
	} bounds[BOUNDS];
	uint64_t key = (uint64_t)size ^ interval * 0x9e3779b97f4a7c15u, place = size / STEP % BOUNDS;
	uint64_t bound = __atomic_load_n(&bounds[place].bound, __ATOMIC_RELAXED);

	if ((__atomic_load_n(&bounds[place].check, __ATOMIC_RELAXED) ^ bound) == key)
		return bound;
	bound = find_bound(size, interval);
	__atomic_store_n(&bounds[place].bound, bound, __ATOMIC_RELAXED);
	__atomic_store_n(&bounds[place].check, key ^ bound, __ATOMIC_RELAXED);
	return bound;
}

uint64_t profile_bound(const struct profile_choice *choice, size_t size)
{
	return bound_of(size, choice->interval);
}

static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

static uint64_t random_number(void)
{
	static uint64_t calls;

	return mix(__atomic_add_fetch(&calls, 0x9e3779b97f4a7c15u, __ATOMIC_RELAXED) ^
		   __atomic_load_n(&profile.secret, __ATOMIC_RELAXED));
}

/* ---- pace ---------------------------------------------------------------------------------------------- */

enum {
	PACE_SAMPLES = 64,                    /* between two looks at the clock */
	PACE_NANOSECONDS = 1000000000 / 1024, /* of CPU time per sample; a sample takes one or two thousand */
	PACE_STEP = 4,
	PACE_WIDEST = 20, /* doublings of the interval, at one look and in all */
};

uint64_t profile_pace(uint64_t asked, uint64_t widened, uint64_t samples, uint64_t nanoseconds)
{
	uint64_t fair = samples * PACE_NANOSECONDS, most = widened << PACE_STEP;

	/* No pace without a clock, nor where more samples than usual were asked for. */
	if (!nanoseconds || asked < PROFILE_INTERVAL)
		return widened;
	if (nanoseconds / 8 > fair)
		return widened / 4 > asked ? widened / 4 : asked;
	for (; nanoseconds < fair && widened < most && widened >> PACE_WIDEST < asked; fair /= 2)
		widened *= 2;
	return widened;
}

/*
 * The loser of a race leaves the look to the winner.  Of two threads that look one after the other, the
 * second may have read the clock first and find that no time has passed: one wrong step, but taken without
 * regard to the samples to come.
 */
static void look_at_pace(uint64_t least)
{
	uint64_t load = __atomic_load_n(&profile.samples, __ATOMIC_RELAXED) +
			__atomic_load_n(&profile.visits, __ATOMIC_RELAXED) / PROFILE_VISITS;
	uint64_t before = __atomic_load_n(&profile.paced_load, __ATOMIC_RELAXED), came = load - before;

	/* Missed visits can make the difference negative: treat it as nothing. */
	if ((int64_t)came < (int64_t)least ||
	    !__atomic_compare_exchange_n(&profile.paced_load, &before, load, false, __ATOMIC_RELAXED,
					 __ATOMIC_RELAXED))
		return;
	uint64_t now = os_cpu_nanoseconds();
	uint64_t spent = now - __atomic_exchange_n(&profile.paced_at, now, __ATOMIC_RELAXED);
	uint64_t widened = __atomic_load_n(&profile.widened, __ATOMIC_RELAXED);
	uint64_t paced = profile_pace(profile.last_interval, widened, came, spent);

	/* Few samples prove that they are few, but not that they are many. */
	if (came >= PACE_SAMPLES || paced < widened)
		__atomic_store_n(&profile.widened, paced, __ATOMIC_RELAXED);
}

/* ---- start and end ------------------------------------------------------------------------------------- */

/*
 * The thread that starts, ends or turns the profile.  Only one does so at a time; for others it is as if the
 * request had come a little later.
 */
static uint32_t busy;

static bool begin_change(void)
{
	return !__atomic_exchange_n(&busy, 1, __ATOMIC_ACQUIRE);
}

static void end_change(void)
{
	__atomic_store_n(&busy, 0, __ATOMIC_RELEASE);
}

bool profile_is_torn(void)
{
	return __atomic_load_n(&busy, __ATOMIC_RELAXED);
}

void profile_repair(void)
{
	/*
	 * The thread that held it is not in the child.  A choice's number, stored last, is either new and
	 * complete or old.
	 */
	if (profile_is_torn())
		end_change();
}

static void choose(uint64_t number, uint64_t interval)
{
	struct profile_choice *choice = &profile_choices[number % PROFILE_CHOICES];
	uint64_t secret = mix(profile.secret + os_milliseconds());

	__atomic_store_n(&profile.secret, secret, __ATOMIC_RELAXED);
	choice->factor = mix(secret + 1) | 1;
	choice->offset = mix(secret + 2);
	choice->interval = interval;
	/* Release: the choice is visible to a thread that sees its number. */
	__atomic_store_n(&profile.choice, number, __ATOMIC_RELEASE);
}

struct profile_tables *profile_enter_tables(void)
{
	struct profile_tables *tables;

	while ((tables = __atomic_load_n(&profile.tables, __ATOMIC_ACQUIRE))) {
		/*
		 * Sequentially consistent, as in is_left(): a start that has not seen this count has changed
		 * `tables` before.
		 */
		__atomic_fetch_add(&tables->users, 1, __ATOMIC_SEQ_CST);
		if (__atomic_load_n(&profile.tables, __ATOMIC_SEQ_CST) == tables)
			break;
		profile_leave_tables(tables);
	}
	return tables;
}

void profile_leave_tables(struct profile_tables *tables)
{
	/* Release: writes to the tables precede their emptying. */
	__atomic_fetch_sub(&tables->users, 1, __ATOMIC_RELEASE);
}

/* Whether no thread is in tables that are no longer the profile's; none can enter them any more. */
static bool is_left(const struct profile_tables *tables)
{
	return !__atomic_load_n(&tables->users, __ATOMIC_SEQ_CST);
}

static void empty(struct profile_tables *tables)
{
	size_t bytes = offsetof(struct profile_tables, bytes_in_use);

	/* Locked pages stay. */
	if (os_purge(tables, bytes) != 0)
		memset(tables, 0, bytes);
	tables->bytes_in_use = 0;
}

/*
 * Returns empty tables: those of the profile before the last; new ones at first, or if a thread is still
 * there.
 */
static struct profile_tables *obtain_tables(void)
{
	struct profile_tables *retired = profile.retired;

	if (!retired || !is_left(retired)) {
		struct profile_tables *tables = os_map(NULL, sizeof *tables);

		/* Mostly zeros, of which a core dump would have every byte. */
		if (tables)
			(void)os_dump(tables, sizeof *tables, false);
		return tables;
	}
	empty(retired);
	return retired;
}

/* Starts that failed for lack of memory. */
static uint64_t refused;

uint64_t profile_refused(void)
{
	return __atomic_load_n(&refused, __ATOMIC_ACQUIRE);
}

static void refuse(uint64_t wanted)
{
	__atomic_fetch_add(&refused, 1, __ATOMIC_RELEASE);
	/* Keep what another thread has asked for meanwhile. */
	__atomic_compare_exchange_n(&profile.wanted, &wanted, 0, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

static bool start(uint64_t wanted)
{
	struct profile_tables *tables = obtain_tables(), *last = profile.tables;

	if (!tables) {
		refuse(wanted);
		return false;
	}
	profile.secret += (uintptr_t)tables;
	profile.widened = wanted;
	profile.samples = profile.visits = profile.paced_load = 0;
	profile.paced_at = os_cpu_nanoseconds();
	profile.lost = 0;
	profile.reach = PROFILE_PLACES;
	/* A jump in numbers, so that marks of the last profile are not taken for this one's. */
	choose(profile.choice + PROFILE_CHOICES, wanted);
	profile.last_interval = wanted;
	__atomic_store_n(&profile.tables, tables, __ATOMIC_SEQ_CST);
	__atomic_store_n(&profile.interval, wanted, __ATOMIC_RELEASE);
	profile.retired = last;
	/*
	 * So that two profiles do not occupy the memory of both.  Otherwise they are emptied for the next
	 * one.
	 */
	if (last && is_left(last))
		empty(last);
	return true;
}

bool profile_settle(void)
{
	if (!begin_change())
		return false;
	uint64_t wanted = __atomic_load_n(&profile.wanted, __ATOMIC_ACQUIRE);
	bool started = wanted && start(wanted);

	if (!wanted)
		__atomic_store_n(&profile.interval, 0, __ATOMIC_RELEASE);
	end_change();
	return started;
}

void profile_turn(void)
{
	if (!begin_change())
		return;
	look_at_pace(0);
	choose(profile.choice + 1, __atomic_load_n(&profile.widened, __ATOMIC_RELAXED));
	end_change();
}

/* ---- samples ------------------------------------------------------------------------------------------- */

/* Several threads may write the same. */
static void fill_site(struct profile_site *site, const uint64_t *frames, unsigned count, size_t size,
		      uint64_t interval)
{
	for (unsigned i = 0; i < count; i++)
		__atomic_store_n(&site->frames[i], frames[i], __ATOMIC_RELAXED);
	__atomic_store_n(&site->frame_count, count, __ATOMIC_RELAXED);
	__atomic_store_n(&site->size, size, __ATOMIC_RELAXED);
	__atomic_store_n(&site->interval, interval, __ATOMIC_RELAXED);
	/* Release: a thread that sees it ready sees all of it. */
	__atomic_store_n(&site->ready, 1, __ATOMIC_RELEASE);
}

/* Finds or makes the site of a stack, a size and an interval; returns NULL when the table is full. */
static struct profile_site *find_site(struct profile_tables *tables, const uint64_t *frames, unsigned count,
				      size_t size, uint64_t interval)
{
	uint64_t hash = size ^ interval * 0x9e3779b97f4a7c15u;

	for (unsigned i = 0; i < count; i++)
		hash = mix(hash ^ frames[i]);
	hash |= 1;
	for (unsigned probe = 0; probe < PROFILE_SITES / 4; probe++) {
		struct profile_site *site = &tables->sites[(hash + probe) % PROFILE_SITES];
		uint64_t found = 0;

		bool claimed = __atomic_compare_exchange_n(&site->hash, &found, hash, false, __ATOMIC_ACQ_REL,
							   __ATOMIC_ACQUIRE);

		/* A collision of 63 bits is too rare to justify comparing stacks. */
		if (!claimed && found != hash)
			continue;
		/* The thread that claimed it may still be filling it, or not exist in a forked child. */
		if (!__atomic_load_n(&site->ready, __ATOMIC_ACQUIRE))
			fill_site(site, frames, count, size, interval);
		return site;
	}
	return NULL;
}

static uint32_t *counter_of(struct profile_tables *tables, const void *object)
{
	return &tables->in_use[(uintptr_t)object * 0x9e3779b97f4a7c15u >> 32 & (PROFILE_COUNTERS - 1)];
}

static struct profile_object *places_of(struct profile_tables *tables, const void *object)
{
	uint64_t place = mix((uintptr_t)object) % (PROFILE_OBJECTS - PROFILE_WINDOW);

	return &tables->objects[place - place % PROFILE_PLACES];
}

/* Returns false when all its places are taken. */
static bool enter_object(struct profile_tables *tables, const void *object, uint64_t site)
{
	struct profile_object *place = places_of(tables, object);

	for (unsigned i = 0; i < PROFILE_WINDOW; i++) {
		uintptr_t empty = 0;

		if (!__atomic_compare_exchange_n(&place[i].address, &empty, 1, false, __ATOMIC_ACQ_REL,
						 __ATOMIC_RELAXED))
			continue;
		/* Before the entry exists: a thread that frees the object searches this far. */
		if (i >= __atomic_load_n(&profile.reach, __ATOMIC_RELAXED))
			__atomic_store_n(&profile.reach, PROFILE_WINDOW, __ATOMIC_RELEASE);
		__atomic_fetch_add(counter_of(tables, object), 1, __ATOMIC_RELAXED);
		place[i].site = site;
		__atomic_store_n(&place[i].address, (uintptr_t)object, __ATOMIC_RELEASE);
		return true;
	}
	return false;
}

/* Returns the bytes that one sample stands for. */
static uint64_t weight(const struct profile_site *site)
{
	return (uint64_t)((double)site->size * 0x1p64 / (double)bound_of(site->size, site->interval));
}

static struct profile_object *find_object(struct profile_tables *tables, const void *object)
{
	if (!__atomic_load_n(counter_of(tables, object), __ATOMIC_RELAXED))
		return NULL;
	struct profile_object *place = places_of(tables, object);
	uint64_t reach = __atomic_load_n(&profile.reach, __ATOMIC_ACQUIRE);

	for (unsigned i = 0; i < reach; i++)
		if (__atomic_load_n(&place[i].address, __ATOMIC_ACQUIRE) == (uintptr_t)object)
			return &place[i];
	return NULL;
}

bool profile_has(const void *object)
{
	return find_object(__atomic_load_n(&profile.tables, __ATOMIC_ACQUIRE), object);
}

static void note_free(struct profile_tables *tables, const void *object)
{
	struct profile_object *found = find_object(tables, object);

	if (!found)
		return;
	/* Only the freeing thread knows the object now. */
	struct profile_site *site = &tables->sites[found->site];

	/* Release: a reader that sees the free sees the allocation (dump.c). */
	__atomic_fetch_add(&site->freed, 1, __ATOMIC_RELEASE);
	__atomic_fetch_sub(&tables->bytes_in_use, weight(site), __ATOMIC_RELAXED);
	__atomic_store_n(&found->address, 0, __ATOMIC_RELEASE);
	__atomic_fetch_sub(counter_of(tables, object), 1, __ATOMIC_RELAXED);
}

void profile_freed(const void *object)
{
	/* Most objects are no samples, and this check needs no entry into the tables. */
	if (!profile_has(object))
		return;
	struct profile_tables *tables = profile_enter_tables();

	note_free(tables, object);
	profile_leave_tables(tables);
}

struct profile_sample profile_set_aside(const void *object)
{
	struct profile_sample sample = {0};

	if (!profile_has(object))
		return sample;
	struct profile_tables *tables = profile_enter_tables();
	const struct profile_object *found = find_object(tables, object);

	if (!found) {
		profile_leave_tables(tables);
		return sample;
	}
	sample = (struct profile_sample){tables, found->site};
	note_free(tables, object);
	return sample;
}

void profile_put_back(struct profile_sample sample, const void *object)
{
	struct profile_tables *tables = sample.tables;

	if (!tables)
		return;
	if (object && enter_object(tables, object, sample.site)) {
		struct profile_site *site = &tables->sites[sample.site];

		__atomic_fetch_sub(&site->freed, 1, __ATOMIC_RELAXED);
		__atomic_fetch_add(&tables->bytes_in_use, weight(site), __ATOMIC_RELAXED);
	}
	profile_leave_tables(tables);
}

/* Records a sample, with the stack from the caller two functions up. */
static inline __attribute__((always_inline)) void note(const void *object, size_t size, uint64_t interval)
{
	uint64_t frames[PROFILE_FRAMES];
	unsigned count = unwind_callers(frames, PROFILE_FRAMES);
	struct profile_tables *tables = profile_enter_tables();

	assert(tables);
	struct profile_site *site = find_site(tables, frames, count, size, interval);

	__atomic_fetch_add(&profile.samples, 1, __ATOMIC_RELAXED);
	look_at_pace(PACE_SAMPLES);
	if (site && enter_object(tables, object, (uint64_t)(site - tables->sites))) {
		__atomic_fetch_add(&site->allocated, 1, __ATOMIC_RELAXED);
		__atomic_fetch_add(&tables->bytes_in_use, weight(site), __ATOMIC_RELAXED);
	} else {
		__atomic_fetch_add(&profile.lost, 1, __ATOMIC_RELAXED);
	}
	profile_leave_tables(tables);
}

__attribute__((noinline)) void profile_allocated(const struct profile_choice *choice, const void *object,
						 size_t size)
{
	uint64_t chosen = choice->interval;
	uint64_t interval = __atomic_load_n(&profile.widened, __ATOMIC_RELAXED);

	/* Its free was not seen: in bulk, or before the profile had begun everywhere. */
	profile_freed(object);
	if (interval <= chosen)
		interval = chosen;
	else if ((uint64_t)((unsigned __int128)random_number() * bound_of(size, chosen) >> 64) >=
		 bound_of(size, interval))
		return;
	note(object, size, interval);
}

__attribute__((noinline)) bool profile_allocated_large(const void *object, size_t size)
{
	uint64_t interval = __atomic_load_n(&profile.widened, __ATOMIC_RELAXED);

	profile_freed(object);
	if (random_number() >= find_bound(size, interval))
		return false;
	note(object, size, interval);
	return true;
}

void profile_show(void (*show)(const char *name, uintptr_t value, size_t size))
{
	show("profile", (uintptr_t)&profile, sizeof(profile));
	show("profile.interval", offsetof(struct profile_state, interval), sizeof(uint64_t));
	show("profile.last_interval", offsetof(struct profile_state, last_interval), sizeof(uint64_t));
	show("profile.wanted", offsetof(struct profile_state, wanted), sizeof(uint64_t));
	show("profile.samples", offsetof(struct profile_state, samples), sizeof(uint64_t));
	show("profile.lost", offsetof(struct profile_state, lost), sizeof(uint64_t));
	show("profile.tables", offsetof(struct profile_state, tables), sizeof(void *));
	show("profile.site", offsetof(struct profile_tables, sites), sizeof(struct profile_site));
	show("profile.sites", PROFILE_SITES, 0);
	show("profile.frames", offsetof(struct profile_site, frames), sizeof(uint64_t[PROFILE_FRAMES]));
	show("profile.count", offsetof(struct profile_site, frame_count), sizeof(uint32_t));
	show("profile.ready", offsetof(struct profile_site, ready), sizeof(uint32_t));
	show("profile.size", offsetof(struct profile_site, size), sizeof(uint64_t));
	show("profile.allocated", offsetof(struct profile_site, allocated), sizeof(uint64_t));
	show("profile.freed", offsetof(struct profile_site, freed), sizeof(uint64_t));
}
