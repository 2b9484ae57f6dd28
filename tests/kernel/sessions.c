/* SPDX-License-Identifier: MIT */
/*
 * See modules.h.  A session is known by its number, its index in a table that grows; a lookup takes a
 * reference.  One lock protects the table.  Errors are undone at the end of scopes, without gotos.
 */
#include "modules.h"

#include <linux/bug.h>
#include <linux/cleanup.h>
#include <linux/err.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/lockdep.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/string.h>

#define LONGEST_SECRET 4096

struct session {
	/* Constructed once, and restored when a session is freed. */
	spinlock_t lock;
	struct list_head notes;
	/* All fields from here on start as zero. */
	struct kref users;
	unsigned int number;
	size_t length;
	u8 *secret;
};

struct note {
	struct list_head in_session;
	size_t length;
	char text[] __counted_by(length);
};

static struct kmem_cache *session_cache __ro_after_init;
static kmem_buckets *note_buckets __ro_after_init;
static DEFINE_RAW_SPINLOCK(table_lock);
static struct session **table;
static unsigned int table_room;

static void construct_session(void *object)
{
	struct session *session = object;

	spin_lock_init(&session->lock);
	INIT_LIST_HEAD(&session->notes);
}

int __init sessions_init(void)
{
	struct kmem_cache_args args = {
		.align = __alignof__(struct session),
		.ctor = construct_session,
	};

	session_cache = kmem_cache_create("session", sizeof(struct session), &args, SLAB_ACCOUNT);
	note_buckets = kmem_buckets_create("note", SLAB_ACCOUNT, 0, INT_MAX, NULL);
	return session_cache && note_buckets ? 0 : -ENOMEM;
}

static void free_session(struct session *session)
{
	struct note *note, *ahead;

	list_for_each_entry_safe(note, ahead, &session->notes, in_session)
	{
		list_del(&note->in_session);
		kfree(note);
	}
	kfree_sensitive(session->secret);
	kmem_cache_free(session_cache, session);
}
DEFINE_FREE(free_session, struct session *, if (!IS_ERR_OR_NULL(_T)) free_session(_T))

static void release_session(struct kref *users)
{
	free_session(container_of(users, struct session, users));
}

/* Doubles the table; called with the lock, so `gfp` must not allow waiting for memory. */
static bool grow_table(gfp_t gfp)
{
	unsigned int room = table_room ? 2 * table_room : 4;
	struct session **larger;

	lockdep_assert_held(&table_lock);
	larger = krealloc_array(table, room, sizeof(*table), gfp | __GFP_ZERO);
	if (!larger)
		return false;
	table = larger;
	table_room = room;
	return true;
}

static int put_into_table(struct session *session)
{
	guard(raw_spinlock_irqsave)(&table_lock);
	for (unsigned int i = 0;; i++) {
		if (i == table_room && !grow_table(GFP_NOWAIT))
			return -ENOMEM;
		if (table[i])
			continue;
		session->number = i;
		table[i] = session;
		return 0;
	}
}

struct session *session_open(const void *secret, size_t length)
{
	struct session *session __free(free_session) = kmem_cache_alloc(session_cache, GFP_KERNEL);

	if (!session)
		return ERR_PTR(-ENOMEM);
	memset_startat(session, 0, users);
	kref_init(&session->users);
	if (length > LONGEST_SECRET)
		return ERR_PTR(-E2BIG);
	session->secret = kmemdup(secret, length, GFP_KERNEL_ACCOUNT);
	if (!session->secret)
		return ERR_PTR(-ENOMEM);
	session->length = length;
	/* The table's reference and the caller's. */
	kref_get(&session->users);
	for (int tries = 0; put_into_table(session); tries++) {
		if (tries == 1000)
			return ERR_PTR(-ENOMEM);
		/* Without the lock, it may wait for pages that others hold. */
		kvfree(kvmalloc(1 << 20, GFP_KERNEL));
	}
	return_ptr(session);
}

unsigned int session_number(const struct session *session)
{
	return session->number;
}

struct session *session_find(unsigned int number)
{
	scoped_guard(raw_spinlock_irqsave, &table_lock)
	{
		struct session *session = number < table_room ? table[number] : NULL;

		if (session && kref_get_unless_zero(&session->users))
			return session;
	}
	return ERR_PTR(-ENOENT);
}

void session_put(struct session *session)
{
	kref_put(&session->users, release_session);
}

int session_close(unsigned int number)
{
	struct session *session = NULL;

	scoped_guard(raw_spinlock_irqsave, &table_lock)
	{
		if (number >= table_room || !table[number])
			break;
		session = table[number];
		table[number] = NULL;
	}
	if (!session)
		return -ENOENT;
	session_put(session);
	return 0;
}

bool session_knows(struct session *session, const void *secret, size_t length)
{
	u8 *copy __free(kfree_sensitive) = kmemdup(secret, length, GFP_KERNEL);

	return copy && length == session->length && !memcmp(copy, session->secret, length);
}

int session_note(struct session *session, const char *text)
{
	size_t length = strlen(text);
	struct note *note __free(kfree) =
		kmem_buckets_alloc(note_buckets, struct_size(note, text, length), GFP_KERNEL);

	if (!note)
		return -ENOMEM;
	note->length = length;
	memcpy(note->text, text, length);
	guard(spinlock)(&session->lock);
	list_add_tail(&note->in_session, &session->notes);
	retain_and_null_ptr(note);
	return 0;
}

size_t session_notes(struct session *session)
{
	struct note *note;
	size_t sum = 0;

	guard(spinlock)(&session->lock);
	list_for_each_entry(note, &session->notes, in_session) sum += note->length;
	return sum;
}

void sessions_exit(void)
{
	for (unsigned int i = 0; i < table_room; i++)
		WARN_ON(table[i]);
	kfree(table);
	table = NULL;
	table_room = 0;
	kmem_cache_destroy(session_cache);
}

MODULE_DESCRIPTION("Sessions");
MODULE_LICENSE("Dual MIT/GPL");
