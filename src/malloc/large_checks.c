/* SPDX-License-Identifier: MIT */
#include "malloc/large_checks.h"

#include "arch/arch.h"
#include "check/object.h"
#include "cpuslab/lock.h"
#include "options/options.h"
#include "page/page.h"

enum { CHAINS = 1024 };

/* A large object of the past or the present. */
struct lone {
	struct lone *next; /* in its chain, for ever */
	void *object;
	struct checks checks; /* with zones of this object's size */
	struct check_record record;
};

static const char name[] = "malloc-large";

unsigned large_check_flags;
static struct lone *chains[CHAINS] ARCH_SPARSE; /* pushed with the lock, by one store */
static struct cpuslab_spinlock chains_lock = CPUSLAB_SPINLOCK_INITIALIZER;
static struct checks failing; /* for the count of calls alone */

void large_checks_init(void)
{
	large_check_flags =
		check_request_flags(name, options.hardened ? CHECK_CONSISTENCY | CHECK_RED_ZONE : 0);
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

/* NULL for none. */
static struct lone *find(const void *object)
{
	struct lone *lone = __atomic_load_n(chain_of(object), __ATOMIC_ACQUIRE);

	while (lone && lone->object != object)
		lone = lone->next;
	return lone;
}

/* Nobody else has the object, so that no two threads make a record of it. */
static struct lone *find_or_create(void *object)
{
	struct lone *lone = find(object);

	if (lone)
		return lone;
	lone = metadata_alloc(sizeof *lone);
	if (!lone)
		return NULL;
	*lone = (struct lone){
		.object = object,
		.checks = {.name = name, .flags = large_check_flags, .lock = CPUSLAB_SPINLOCK_INITIALIZER},
	};
	cpuslab_spin_lock(&chains_lock);
	lone->next = *chain_of(object);
	__atomic_store_n(chain_of(object), lone, __ATOMIC_RELEASE);
	cpuslab_spin_unlock(&chains_lock);
	return lone;
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

/* There is nothing to poison: fresh memory is zero, and what was freed is out of reach. */
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
	struct lone *lone = bytes <= UINT32_MAX ? find_or_create(object) : NULL;

	if (!lone)
		return;
	struct check_place place = place_of(lone);

	/* It may say otherwise, of an object that a forked child has lost. */
	lone->record.state = CHECK_IS_FREE;
	lone->checks.zones = zones_for(bytes);
	(void)check_alloc(&lone->checks, &place, (uint32_t)requested);
}

bool large_check_free(void *object, size_t stated)
{
	struct lone *lone = find(object);

	if (!lone)
		return true;
	struct check_place place = place_of(lone);

	/* One that was asked for without any bytes has one, so that it has a page. */
	if (!stated)
		stated = 1;
	if (!check_free(&lone->checks, &place, object, stated))
		return false;
	/* The memory goes: a report of another free must not show its bytes. */
	lone->checks.zones = (struct zones){0};
	return true;
}

size_t large_check_usable(const void *object, size_t bytes)
{
	const struct lone *lone = find(object);

	return lone && lone->record.state == CHECK_IS_OUT ? check_usable(&lone->checks, &lone->record)
							  : bytes;
}

/* ---- all objects ----------------------------------------------------------------------------------- */

static void visit_all(void (*visit)(struct lone *lone, void *argument), void *argument)
{
	for (unsigned chain = 0; chain < CHAINS; chain++)
		for (struct lone *lone = __atomic_load_n(&chains[chain], __ATOMIC_ACQUIRE); lone;
		     lone = lone->next)
			visit(lone, argument);
}

static void validate(struct lone *lone, void *argument)
{
	struct check_place place = place_of(lone);

	/* With the record's lock, which a free takes before the memory goes. */
	cpuslab_spin_lock(&lone->checks.lock);
	*(uint64_t *)argument += lone->record.state == CHECK_IS_OUT && check_validate(&lone->checks, &place);
	cpuslab_spin_unlock(&lone->checks.lock);
}

uint64_t large_checks_validate(void)
{
	uint64_t damaged = 0;

	visit_all(validate, &damaged);
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

	if (lone->record.state == CHECK_IS_OUT)
		live->visit(owned ? lone->record.allocated.stack : 0, lone->record.requested, live->argument);
}

bool large_checks_visit_live(void (*visit)(uint32_t stack, uint32_t bytes, void *argument), void *argument)
{
	struct live_walk live = {visit, argument};

	visit_all(visit_one, &live);
	return large_check_flags & CHECK_OWNER;
}

static void repair(struct lone *lone, void *argument)
{
	(void)argument;
	check_repair(&lone->checks);
}

void large_checks_repair(void)
{
	if (!large_is_checked())
		return;
	cpuslab_spin_reset(&chains_lock);
	visit_all(repair, NULL);
}
