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

	field->value = value;
	field->size = (uint32_t)size;
	field->name = (int32_t)((intptr_t)name - (intptr_t)&cpuslab_root);
	/*
	 * Last: a reader that sees a count finds that many fields.  The count stays 0 until the start is
	 * over.
	 */
	if (cpuslab_root.fields)
		__atomic_store_n(&cpuslab_root.field_count, field_count, __ATOMIC_RELEASE);
}

/* Plain numbers of each build.  A table, since calls would be more code than all else that a start runs. */
struct number {
	char name[ROOT_FIELD_NAME];
	uint32_t value, size;
};

#define MEMBER(name, member)                                                                                 \
	{                                                                                                    \
		name, offsetof(struct cache, member), sizeof((struct cache *)0)->member                      \
	}

static const struct number numbers[] = {
	/* The layout of a cache, which includes its depot and its slabs. */
	{"cache", 0, sizeof(struct cache)},
	MEMBER("cache.number", number),
	MEMBER("cache.owner", owner),
	MEMBER("cache.slabs", depot.slabs),
	MEMBER("cache.name", depot.slabs.traits.name),
	MEMBER("cache.size", depot.slabs.traits.size),
	MEMBER("cache.alignment", depot.slabs.traits.alignment),
	MEMBER("cache.type_stable", depot.slabs.traits.type_stable),
	MEMBER("cache.construct", depot.slabs.traits.construct),
	MEMBER("cache.objects", depot.slabs.objects),
	MEMBER("cache.pages", depot.slabs.pages),
	MEMBER("cache.slab_lock", depot.slabs.lock),
	{"cache.empty", offsetof(struct cache, depot.slabs.empty), sizeof(void *)},
	MEMBER("cache.slab_count", depot.slabs.slabs),
	MEMBER("cache.full_slabs", depot.slabs.full_slabs),
	MEMBER("cache.allocated", depot.slabs.allocated),
	MEMBER("cache.created", depot.slabs.created),
	MEMBER("cache.freed", depot.slabs.freed),
	MEMBER("cache.slab_locks", depot.slabs.lock_acquires),
	MEMBER("depot.lock", depot.lock),
	MEMBER("depot.filled", depot.filled_count),
	MEMBER("depot.empty", depot.empty_count),
	MEMBER("depot.objects", depot.objects),
	MEMBER("depot.capacity", depot.capacity),
	MEMBER("depot.batch", depot.batch),
	MEMBER("depot.sharedfactor", depot.sharedfactor),
	MEMBER("depot.refills", depot.refills),
	MEMBER("depot.drains", depot.drains),
	MEMBER("depot.locks", depot.lock_acquires),
	{"magazine.count", offsetof(struct magazine, count), sizeof(uint16_t)},
	{"magazine.marks", offsetof(struct magazine, marks), sizeof(uint16_t)},
	{"magazine.slot", offsetof(struct magazine, slot), sizeof(void *)},
	/* The layout of a vCPU's area (see vcpu.h). */
	{"area", 0, VCPU_AREA_BYTES},
	{"area.bank_caches", VCPU_BANK_CACHES, 0},
	{"area.row", VCPU_ROW, 0},
	{"area.row_bytes", VCPU_ROW_BYTES, 0},
	{"area.group_bytes", VCPU_GROUP_BYTES, 0},
	{"page.table_bytes", ARCH_TABLE_BYTES, 0},
	/* Page map entries: a large run begins; from here on, a slab of any kind. */
	{"page.id_large", PAGE_LARGE, 0},
	{"page.id_slab", PAGE_SLAB, 0},
	{"page.id_linked", PAGE_LINKED, 0},
};

#undef MEMBER

void root_publish(void)
{
	for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++)
		root_show(numbers[i].name, numbers[i].value, numbers[i].size);
	magazine_show(root_show);
	linked_show(root_show);
	root_show("arch.aborts", (uintptr_t)&arch_section_aborts, sizeof arch_section_aborts);
	cpuslab_root.fields = (uintptr_t)fields;
	__atomic_store_n(&cpuslab_root.field_count, field_count, __ATOMIC_RELEASE);
}
