/* SPDX-License-Identifier: MIT */
#include "malloc/large_checks.h"

#include "arch/arch.h"
#include "check/object.h"
#include "cpuslab/lock.h"
#include "options/options.h"
#include "page/page.h"

enum { CHAINS = 1024, FREED_KEPT = 1024 };

/* A present or past large object. */
struct lone {
	struct lone *next;  /* in its chain */
	struct lone *after; /* in the line of freed ones */
	void *object;
	bool in_use;          /* or about to be */
	bool lost;            /* its address belongs to an object without a record: not to be found by it */
	bool in_line;         /* possible for one that is in use again */
	bool freed_again;     /* since it entered the line */
	struct checks checks; /* with zones of this object's size */
	struct check_record record;
};

static const char name[] = "malloc-large";

unsigned large_check_flags;
static struct lone *chains[CHAINS] ARCH_SPARSE; /* each changed by a single store, for fork */
static struct cpuslab_spinlock chains_lock = CPUSLAB_SPINLOCK_INITIALIZER;
/* The line of freed objects' records, oldest first. */
static struct lone *line_first, *line_last;
static unsigned line_length;
static struct checks failing; /* only counts calls */

void large_checks_init(void)
{
	large_check_flags =
		check_request_flags(name, options.hardened ? CHECK_CONSISTENCY | CHECK_RED_ZONE : 0);
	if (large_check_flags) /* few programs have this variable's page */
		failing.flags = large_check_flags;
	if (large_check_flags & CHECK_RED_ZONE)
		huge_isolate();
}

bool large_check_fails(void)
{
	return check_fails(&failing);
}

static struct lone **chain_of(const void *object)
{
	return &chains[(page_of(object) * 0x9e3779b97f4a7c15u >> 32) % CHAINS];
}

/* ---- records: with the lock -------------------------------------------------------------------------- */

static struct lone *find_locked(const void *object)
{
	struct lone *lone = *chain_of(object);

	while (lone && (lone->lost || lone->object != object))
		lone = lone->next;
	return lone;
}

static void enter_chain(struct lone *lone)
{
	struct lone **chain = chain_of(lone->object);

	lone->next = *chain;
	/* Release: a forked child finds the record whole or not at all. */
	__atomic_store_n(chain, lone, __ATOMIC_RELEASE);
}

static void leave_chain(struct lone *lone)
{
	struct lone **link = chain_of(lone->object);

	while (*link != lone)
		link = &(*link)->next;
	__atomic_store_n(link, lone->next, __ATOMIC_RELEASE);
}

static void enter_line(struct lone *lone)
{
	lone->after = NULL;
	lone->in_line = true;
	lone->freed_again = false;
	if (line_first)
		line_last->after = lone;
	else
		line_first = lone;
	line_last = lone;
	line_length++;
}

static struct lone *leave_line(void)
{
	struct lone *lone = line_first;

	line_first = lone->after;
	lone->in_line = false;
	line_length--;
	return lone;
}

/* Takes the record of the object freed longest ago, for reuse; NULL while too few have been freed. */
static struct lone *take_oldest(void)
{
	while (line_length >= FREED_KEPT) {
		struct lone *lone = leave_line();

		if (lone->in_use)
			continue;
		if (!lone->freed_again) {
			leave_chain(lone);
			lone->lost = false;
			return lone;
		}
		enter_line(lone);
	}
	return NULL;
}

/*
 * Gives a record to another object.  A thread that still holds it from a wrong free, and is reporting that,
 * is waited for.
 */
static void rename_record(struct lone *lone, void *object)
{
	cpuslab_spin_lock(&lone->checks.lock);
	lone->object = object;
	lone->record = (struct check_record){.state = CHECK_IS_FREE};
	cpuslab_spin_unlock(&lone->checks.lock);
}

static struct lone *create(void *object)
{
	struct lone *lone = take_oldest();

	if (lone) {
		rename_record(lone, object);
	} else {
		lone = metadata_alloc(sizeof *lone);
		if (!lone)
			return NULL;
		*lone = (struct lone){
			.object = object,
			.checks = {.name = name,
				   .flags = large_check_flags,
				   .lock = CPUSLAB_SPINLOCK_INITIALIZER},
		};
	}
	enter_chain(lone);
	return lone;
}

static void visit_all(void (*visit)(struct lone *lone, void *argument), void *argument)
{
	for (unsigned chain = 0; chain < CHAINS; chain++)
		for (struct lone *lone = chains[chain]; lone; lone = lone->next)
			visit(lone, argument);
}

/* ---- records ------------------------------------------------------------------------------------------ */

/* NULL for none. */
static struct lone *find(const void *object)
{
	cpuslab_spin_lock(&chains_lock);
	struct lone *lone = find_locked(object);

	cpuslab_spin_unlock(&chains_lock);
	return lone;
}

/* For an object that the caller alone owns. */
static struct lone *find_or_create(void *object)
{
	cpuslab_spin_lock(&chains_lock);
	struct lone *lone = find_locked(object);

	if (!lone)
		lone = create(object);
	if (lone)
		lone->in_use = true;
	cpuslab_spin_unlock(&chains_lock);
	return lone;
}

/*
 * With the lock: drops what is known of an earlier object at this address.  Its record is left as it is,
 * since a thread that holds it from a wrong free may be reporting that, under a lock that this function
 * must not wait for.
 */
static void forget_locked(const void *object)
{
	struct lone *lone = find_locked(object);

	if (!lone)
		return;
	lone->lost = true;
	lone->in_use = false;
	if (!lone->in_line)
		enter_line(lone);
}

/* For an object too large for a record. */
static void forget(const void *object)
{
	cpuslab_spin_lock(&chains_lock);
	forget_locked(object);
	cpuslab_spin_unlock(&chains_lock);
}

bool large_checks_try_lock(void)
{
	return cpuslab_spin_trylock(&chains_lock);
}

void large_checks_unlock(const void *object)
{
	if (object)
		forget_locked(object);
	cpuslab_spin_unlock(&chains_lock);
}

struct address {
	const char *pointer;
	struct lone *around; /* the record of the object that it lies in */
};

static void compare_address(struct lone *lone, void *argument)
{
	struct address *address = argument;

	if (lone->in_use && (size_t)(address->pointer - (const char *)lone->object) <
				    __atomic_load_n(&lone->checks.zones.object_bytes, __ATOMIC_RELAXED))
		address->around = lone;
}

/* The record of the object in use that contains `pointer`; NULL for none. */
static struct lone *find_around(const void *pointer)
{
	struct address address = {.pointer = pointer};

	cpuslab_spin_lock(&chains_lock);
	visit_all(compare_address, &address);
	cpuslab_spin_unlock(&chains_lock);
	return address.around;
}

/* Marks a record's object as freed; it stays known as long as FREED_KEPT records allow. */
static void note_freed(struct lone *lone)
{
	/* Under the record's lock, as reports are: they show an object's bytes only while they exist. */
	cpuslab_spin_lock(&lone->checks.lock);
	lone->checks.zones = (struct zones){0};
	cpuslab_spin_unlock(&lone->checks.lock);

	cpuslab_spin_lock(&chains_lock);
	lone->in_use = false;
	if (lone->in_line)
		lone->freed_again = true;
	else
		enter_line(lone);
	cpuslab_spin_unlock(&chains_lock);
}

static struct check_place place_of(struct lone *lone)
{
	return (struct check_place){
		.slot = lone->object,
		.record = &lone->record,
		.slab = lone->object,
		.objects = 1,
		.used = 1,
	};
}

/* Nothing is poisoned: fresh memory is zero, and freed memory inaccessible. */
static struct zones zones_for(size_t bytes)
{
	return (struct zones){
		.object_bytes = (uint32_t)bytes,
		.zone_end = (uint32_t)bytes,
		.slot_bytes = (uint32_t)bytes,
		.red = large_check_flags & CHECK_RED_ZONE,
	};
}

void large_check_alloc(void *object, size_t requested, size_t bytes)
{
	if (bytes > UINT32_MAX) {
		forget(object);
		return;
	}
	struct lone *lone = find_or_create(object);

	if (!lone)
		return;
	struct check_place place = place_of(lone);

	/* May still be set, for an object that a forked child has lost. */
	lone->record.state = CHECK_IS_FREE;
	lone->checks.zones = zones_for(bytes);
	(void)check_alloc(&lone->checks, &place, (uint32_t)requested);
}

bool large_check_free(void *object, size_t stated)
{
	struct lone *lone = find(object);

	if (!lone)
		lone = find_around(object);
	if (!lone)
		return true;
	struct check_place place = place_of(lone);

	/* An object of zero bytes is allocated as one byte, so that it has a page. */
	if (!stated)
		stated = 1;
	if (!check_free(&lone->checks, &place, object, stated))
		return false;
	note_freed(lone);
	return true;
}

bool large_check_resize(void *object, size_t bytes, size_t requested)
{
	struct lone *lone = find(object);

	if (requested > bytes)
		return false;
	if (lone) {
		struct check_place place = place_of(lone);

		check_resize(&lone->checks, &place, object, (uint32_t)requested);
	}
	return true;
}

size_t large_check_usable(const void *object, size_t bytes)
{
	const struct lone *lone = find(object);

	return lone && lone->record.state == CHECK_IS_OUT ? check_usable(&lone->checks, &lone->record)
							  : bytes;
}

size_t large_check_requested(const void *object, size_t bytes)
{
	const struct lone *lone = find(object);

	return lone && lone->record.state == CHECK_IS_OUT ? lone->record.requested : bytes;
}

/* ---- all objects ----------------------------------------------------------------------------------- */

static void lock_and_visit_all(void (*visit)(struct lone *lone, void *argument), void *argument)
{
	cpuslab_spin_lock(&chains_lock);
	visit_all(visit, argument);
	cpuslab_spin_unlock(&chains_lock);
}

static bool is_out(const struct lone *lone)
{
	return !lone->lost && lone->record.state == CHECK_IS_OUT;
}

static void validate(struct lone *lone, void *argument)
{
	struct check_place place = place_of(lone);

	/* A free takes the record's lock before the memory goes. */
	cpuslab_spin_lock(&lone->checks.lock);
	*(uint64_t *)argument += is_out(lone) && check_validate(&lone->checks, &place);
	cpuslab_spin_unlock(&lone->checks.lock);
}

uint64_t large_checks_validate(void)
{
	uint64_t damaged = 0;

	lock_and_visit_all(validate, &damaged);
	return damaged;
}

struct live_walk {
	void (*visit)(uint32_t stack, uint32_t bytes, void *argument);
	void *argument;
};

static void visit_one(struct lone *lone, void *argument)
{
	const struct live_walk *live = argument;
	bool owned = large_check_flags & CHECK_OWNER;

	if (is_out(lone))
		live->visit(owned ? lone->record.allocated.stack : 0, lone->record.requested, live->argument);
}

bool large_checks_visit_live(void (*visit)(uint32_t stack, uint32_t bytes, void *argument), void *argument)
{
	struct live_walk live = {visit, argument};

	lock_and_visit_all(visit_one, &live);
	return large_check_flags & CHECK_OWNER;
}

/*
 * In a forked child.  The line's order is unknown; an object that another thread was allocating is
 * nobody's.
 */
static void repair(struct lone *lone, void *argument)
{
	(void)argument;
	check_repair(&lone->checks);
	lone->in_use = !lone->lost && lone->record.state != CHECK_IS_FREE;
	lone->in_line = false;
	if (!lone->in_use)
		enter_line(lone);
}

void large_checks_repair(void)
{
	if (!large_is_checked())
		return;
	cpuslab_spin_reset(&chains_lock);
	line_first = NULL;
	line_length = 0;
	visit_all(repair, NULL);
}
