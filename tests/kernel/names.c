/* SPDX-License-Identifier: MIT */
/*
 * See modules.h.  A short text is stored in its name, a long one in memory of its own.  One lock protects the
 * table, the counts and the list of unused names; memory is allocated and freed without it.
 */
#include "modules.h"

#include <linux/bitops.h>
#include <linux/bug.h>
#include <linux/export.h>
#include <linux/kernel.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/stddef.h>
#include <linux/string.h>
#include <linux/vmalloc.h>

#define CHAINS  BIT(10)
#define PORTION 50ul

/* What a name stands for; freed in the state that construct_subject() creates. */
struct subject {
	spinlock_t lock;
	struct list_head names;
};

struct name {
	const char *text;
	struct subject *subject;
	unsigned long users;
	struct hlist_node in_chain;
	struct list_head unused; /* link in the list of unused names, least recently used first */
	char within[30];
};

static struct kmem_cache *name_cache __ro_after_init;
static struct kmem_cache *subject_cache __ro_after_init;
static struct hlist_head *chains __ro_after_init;
static DEFINE_SPINLOCK(names_lock);
static LIST_HEAD(unused_names);

static void construct_subject(void *object)
{
	struct subject *subject = object;

	spin_lock_init(&subject->lock);
	INIT_LIST_HEAD(&subject->names);
}

int __init names_init(void)
{
	slab_flags_t flags = SLAB_RECLAIM_ACCOUNT | SLAB_PANIC | SLAB_ACCOUNT;

	name_cache = KMEM_CACHE_USERCOPY(name, flags, within);
	subject_cache = kmem_cache_create("subject", sizeof(struct subject), 0, flags, construct_subject);
	chains = vmalloc_array(CHAINS, sizeof(*chains));
	for (struct hlist_head *chain = chains; chain && chain < chains + CHAINS; chain++)
		INIT_HLIST_HEAD(chain);
	return chains ? 0 : -ENOMEM;
}

static struct hlist_head *chain_of(const char *text)
{
	u32 sum = 0;

	for (; *text; text++)
		sum = (sum ^ (u8)*text) * 16777619u;
	return &chains[(sum ^ sum >> 16) & (CHAINS - 1)];
}

/* Also frees a partly built name. */
static void __cold free_name(struct name *name)
{
	if (name->text != name->within)
		kfree(name->text);
	if (name->subject) {
		WARN_ON(!list_empty(&name->subject->names));
		kmem_cache_free(subject_cache, name->subject);
	}
	kmem_cache_free(name_cache, name);
}

static const char *text_for(struct name *name, const char *text)
{
	size_t bytes = strlen(text) + 1;

	if (bytes > sizeof_field(struct name, within))
		return kmemdup(text, bytes, GFP_KERNEL_ACCOUNT | __GFP_RECLAIMABLE);
	strscpy(name->within, text);
	return name->within;
}

static struct name *new_name(const char *text)
{
	struct name *name = kmem_cache_alloc_lru(name_cache, NULL, GFP_KERNEL);

	if (!name)
		return NULL;
	name->users = 1;
	INIT_HLIST_NODE(&name->in_chain);
	INIT_LIST_HEAD(&name->unused);
	name->text = text_for(name, text);
	name->subject = kmem_cache_alloc(subject_cache, GFP_KERNEL);
	if (name->text && name->subject)
		return name;
	free_name(name);
	return NULL;
}

/* Called with the lock. */
static struct name *find_and_use(const char *text)
{
	struct name *name;

	hlist_for_each_entry(name, chain_of(text), in_chain)
	{
		if (strcmp(name->text, text) != 0)
			continue;
		if (!name->users++)
			list_del_init(&name->unused);
		return name;
	}
	return NULL;
}

/* Returns the name that is in the table by now, adding `made` if there is none. */
static struct name *find_or_add(const char *text, struct name *made)
{
	struct name *name;

	spin_lock(&names_lock);
	name = find_and_use(text);
	if (!name && made) {
		hlist_add_head(&made->in_chain, chain_of(text));
		name = made;
	}
	spin_unlock(&names_lock);
	return name;
}

struct name *name_get(const char *text)
{
	struct name *name, *made;

	might_sleep();
	name = find_or_add(text, NULL);
	if (name)
		return name;
	made = new_name(text);
	name = made ? find_or_add(text, made) : NULL;
	if (name != made)
		free_name(made);
	return name;
}
EXPORT_SYMBOL(name_get);

void name_put(struct name *name)
{
	spin_lock(&names_lock);
	WARN_ON_ONCE(!name->users);
	if (--name->users == 0)
		list_add_tail(&name->unused, &unused_names);
	spin_unlock(&names_lock);
}
EXPORT_SYMBOL(name_put);

const char *name_text(const struct name *name)
{
	return name->text;
}
EXPORT_SYMBOL(name_text);

/* Moves up to `most` unused names from the table to the list. */
static void take_unused(struct list_head *taken, unsigned long most)
{
	struct name *name;

	spin_lock(&names_lock);
	for (; most; most--) {
		name = list_first_entry_or_null(&unused_names, struct name, unused);
		if (!name)
			break;
		hlist_del_init(&name->in_chain);
		list_move_tail(&name->unused, taken);
	}
	spin_unlock(&names_lock);
}

/* In portions, so that nobody waits long for the lock. */
unsigned long names_shrink(unsigned long count)
{
	struct name *name, *ahead;
	unsigned long left = count;
	LIST_HEAD(taken);

	do {
		take_unused(&taken, min(left, PORTION));
		if (list_empty(&taken))
			break;
		list_for_each_entry_safe(name, ahead, &taken, unused)
		{
			free_name(name);
			left--;
		}
		INIT_LIST_HEAD(&taken);
		cond_resched();
	} while (left);
	return count - left;
}
EXPORT_SYMBOL(names_shrink);

void names_exit(void)
{
	names_shrink(ULONG_MAX);
	vfree(chains);
	kmem_cache_destroy(subject_cache);
	kmem_cache_destroy(name_cache);
}
