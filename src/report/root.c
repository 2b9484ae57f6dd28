/* SPDX-License-Identifier: MIT */
#include "report/root.h"

#include <assert.h>
#include <string.h>

#include "arch/arch.h"
#include "arch/note.h"
#include "cpuslab/cpuslab.h"
#include "linked/linked.h"
#include "magazine/magazine.h"

static struct root_field fields[ROOT_FIELDS_MAX];
static uint32_t field_count;

ARCH_INTERNAL extern struct root cpuslab_root;
__attribute__((used)) struct root cpuslab_root = {
	.magic = "cpuslab",
	.version = ROOT_VERSION,
	.bytes = sizeof(struct root),
	.field_bytes = sizeof(struct root_field),
	.release = CPUSLAB_VERSION,
};

ARCH_DEFINE_NOTE("cpuslab", 1, cpuslab_root);

void root_show(const char *name, uintptr_t value, size_t size)
{
	assert(field_count < ROOT_FIELDS_MAX && strlen(name) < ROOT_FIELD_NAME);
	struct root_field *field = &fields[field_count++];

	strcpy(field->name, name);
	field->value = value;
	field->size = size;
	/* Last: who reads a count finds so many fields.  It stays 0 until the start is over. */
	if (cpuslab_root.fields)
		__atomic_store_n(&cpuslab_root.field_count, field_count, __ATOMIC_RELEASE);
}

/* What a cache keeps where; its depot and its slabs are part of it. */
static void show_cache(void)
{
#define SHOW(name, member) root_show(name, offsetof(struct cache, member), sizeof((struct cache *)0)->member)
	root_show("cache", 0, sizeof(struct cache));
	SHOW("cache.number", number);
	SHOW("cache.owner", owner);
	SHOW("cache.slabs", depot.slabs);
	SHOW("cache.name", depot.slabs.traits.name);
	SHOW("cache.size", depot.slabs.traits.size);
	SHOW("cache.alignment", depot.slabs.traits.alignment);
	SHOW("cache.type_stable", depot.slabs.traits.type_stable);
	SHOW("cache.construct", depot.slabs.traits.construct);
	SHOW("cache.objects", depot.slabs.objects);
	SHOW("cache.pages", depot.slabs.pages);
	SHOW("cache.slab_lock", depot.slabs.lock);
	root_show("cache.empty", offsetof(struct cache, depot.slabs.empty), sizeof(void *));
	SHOW("cache.slab_count", depot.slabs.slabs);
	SHOW("cache.full_slabs", depot.slabs.full_slabs);
	SHOW("cache.allocated", depot.slabs.allocated);
	SHOW("cache.created", depot.slabs.created);
	SHOW("cache.freed", depot.slabs.freed);
	SHOW("cache.slab_locks", depot.slabs.lock_acquires);
	SHOW("depot.lock", depot.lock);
	SHOW("depot.filled", depot.filled_count);
	SHOW("depot.empty", depot.empty_count);
	SHOW("depot.objects", depot.objects);
	SHOW("depot.capacity", depot.capacity);
	SHOW("depot.batch", depot.batch);
	SHOW("depot.sharedfactor", depot.sharedfactor);
	SHOW("depot.refills", depot.refills);
	SHOW("depot.drains", depot.drains);
	SHOW("depot.locks", depot.lock_acquires);
#undef SHOW
	root_show("magazine.count", offsetof(struct magazine, count), sizeof(uint16_t));
	root_show("magazine.marks", offsetof(struct magazine, marks), sizeof(uint16_t));
	root_show("magazine.slot", offsetof(struct magazine, slot), sizeof(void *));
}

/* The plan of a vCPU's area (see vcpu.h). */
static void show_area(void)
{
	root_show("area", 0, VCPU_AREA_BYTES);
	root_show("area.bank_caches", VCPU_BANK_CACHES, 0);
	root_show("area.row", VCPU_ROW, 0);
	root_show("area.row_bytes", VCPU_ROW_BYTES, 0);
	root_show("area.group_bytes", VCPU_GROUP_BYTES, 0);
}

void root_publish(void)
{
	show_cache();
	show_area();
	magazine_show(root_show);
	linked_show(root_show);
	root_show("arch.aborts", (uintptr_t)&arch_section_aborts, sizeof arch_section_aborts);
	root_show("page.table_bytes", ARCH_TABLE_BYTES, 0);
	/* What an entry of the page map means: a large run begins; a slab of any kind, from here on. */
	root_show("page.id_large", PAGE_LARGE, 0);
	root_show("page.id_slab", PAGE_SLAB, 0);
	root_show("page.id_linked", PAGE_LINKED, 0);
	cpuslab_root.fields = (uintptr_t)fields;
	__atomic_store_n(&cpuslab_root.field_count, field_count, __ATOMIC_RELEASE);
}
