/* SPDX-License-Identifier: MIT */
/*
 * For kernel sources in user space: lists linked through members of their entries.  list_head is a ring that
 * contains the list's head; hlist has a head of one pointer, for hash tables.  The kernel's documentation
 * (core-api/kernel-api) describes each function and loop.  Nothing here takes a lock.
 */
#pragma GCC system_header /* beside macros of these names: linux/compiler.h */
#ifndef CPUSLAB_LINUX_LIST_H
#define CPUSLAB_LINUX_LIST_H

#include <linux/compiler.h>
#include <linux/container_of.h>
#include <linux/types.h>

/* The values of a deleted entry's pointers: nothing is mapped there. */
#define LIST_POISON1 ((void *)0x100)
#define LIST_POISON2 ((void *)0x122)

/* ---- rings --------------------------------------------------------------------------------------------- */

/* clang-format off */
#define LIST_HEAD_INIT(name) {&(name), &(name)}
/* clang-format on */
#undef LIST_HEAD /* <sys/queue.h> has another */
#define LIST_HEAD(name) struct list_head name = LIST_HEAD_INIT(name)

/* Written as a whole, since some callers ask without a lock whether a list is empty. */
static inline void cpuslab_list_tie(struct list_head *before, struct list_head *after)
{
	after->prev = before;
	WRITE_ONCE(before->next, after);
}

static inline void INIT_LIST_HEAD(struct list_head *list)
{
	cpuslab_list_tie(list, list);
}

/* After the head: a stack.  Before it: a queue. */
static inline void list_add(struct list_head *entry, struct list_head *head)
{
	struct list_head *after = head->next;

	cpuslab_list_tie(entry, after);
	cpuslab_list_tie(head, entry);
}

static inline void list_add_tail(struct list_head *entry, struct list_head *head)
{
	list_add(entry, head->prev);
}

/* Leaves the entry's own pointers alone. */
static inline void __list_del_entry(struct list_head *entry)
{
	cpuslab_list_tie(entry->prev, entry->next);
}

static inline void list_del(struct list_head *entry)
{
	__list_del_entry(entry);
	entry->next = (struct list_head *)LIST_POISON1;
	entry->prev = (struct list_head *)LIST_POISON2;
}

static inline void list_del_init(struct list_head *entry)
{
	__list_del_entry(entry);
	INIT_LIST_HEAD(entry);
}

/* Puts `by` in the place of `old`, whose own pointers stay. */
static inline void list_replace(struct list_head *old, struct list_head *by)
{
	cpuslab_list_tie(by, old->next);
	cpuslab_list_tie(old->prev, by);
}

static inline void list_replace_init(struct list_head *old, struct list_head *by)
{
	list_replace(old, by);
	INIT_LIST_HEAD(old);
}

static inline void list_move(struct list_head *entry, struct list_head *head)
{
	__list_del_entry(entry);
	list_add(entry, head);
}

static inline void list_move_tail(struct list_head *entry, struct list_head *head)
{
	__list_del_entry(entry);
	list_add_tail(entry, head);
}

/* Exchanges the places of two entries, even neighbours: a third entry keeps the place of one. */
static inline void list_swap(struct list_head *a, struct list_head *b)
{
	struct list_head kept;

	list_replace(a, &kept);
	list_replace(b, a);
	list_replace(&kept, b);
}

/* Moves `first` to `last`, which belong to one list. */
static inline void list_bulk_move_tail(struct list_head *head, struct list_head *first,
				       struct list_head *last)
{
	struct list_head *before;

	cpuslab_list_tie(first->prev, last->next);
	before = head->prev;
	cpuslab_list_tie(last, head);
	cpuslab_list_tie(before, first);
}

static inline int list_empty(const struct list_head *head)
{
	return READ_ONCE(head->next) == head;
}

/*
 * Pairs with a list_empty_careful() without a lock: once that sees the entry empty, it also sees all that was
 * done to the entry before.
 */
static inline void list_del_init_careful(struct list_head *entry)
{
	__list_del_entry(entry);
	WRITE_ONCE(entry->prev, entry);
	smp_store_release(&entry->next, entry);
}

static inline int list_empty_careful(const struct list_head *head)
{
	struct list_head *next = smp_load_acquire(&head->next);

	return next == head && next == READ_ONCE(head->prev);
}

static inline int list_is_first(const struct list_head *entry, const struct list_head *head)
{
	return entry->prev == head;
}

static inline int list_is_last(const struct list_head *entry, const struct list_head *head)
{
	return entry->next == head;
}

static inline int list_is_head(const struct list_head *entry, const struct list_head *head)
{
	return entry == head;
}

static inline int list_is_singular(const struct list_head *head)
{
	return !list_empty(head) && head->next == head->prev;
}

static inline size_t list_count_nodes(struct list_head *head)
{
	size_t count = 0;

	for (const struct list_head *entry = head->next; entry != head; entry = entry->next)
		count++;
	return count;
}

/* Makes the first entry the last. */
static inline void list_rotate_left(struct list_head *head)
{
	if (!list_empty(head))
		list_move_tail(head->next, head);
}

/* Makes `entry` the first, and what was before it the last. */
static inline void list_rotate_to_front(struct list_head *entry, struct list_head *head)
{
	list_move_tail(head, entry);
}

/* Inserts all of `list`, whose head is left as it is, between two neighbours. */
static inline void cpuslab_list_insert_all(const struct list_head *list, struct list_head *before,
					   struct list_head *after)
{
	struct list_head *first = list->next, *last = list->prev;

	if (list_empty(list))
		return;
	cpuslab_list_tie(last, after);
	cpuslab_list_tie(before, first);
}

static inline void list_splice(const struct list_head *list, struct list_head *head)
{
	cpuslab_list_insert_all(list, head, head->next);
}

static inline void list_splice_tail(struct list_head *list, struct list_head *head)
{
	cpuslab_list_insert_all(list, head->prev, head);
}

static inline void list_splice_init(struct list_head *list, struct list_head *head)
{
	list_splice(list, head);
	INIT_LIST_HEAD(list);
}

static inline void list_splice_tail_init(struct list_head *list, struct list_head *head)
{
	list_splice_tail(list, head);
	INIT_LIST_HEAD(list);
}

/* Moves the part before `entry` to `list`, which it overwrites; list_cut_position moves `entry`, too. */
static inline void list_cut_before(struct list_head *list, struct list_head *head, struct list_head *entry)
{
	struct list_head *first = head->next, *last = entry->prev;

	INIT_LIST_HEAD(list);
	if (first == entry)
		return;
	cpuslab_list_tie(head, entry);
	cpuslab_list_tie(last, list);
	cpuslab_list_tie(list, first);
}

static inline void list_cut_position(struct list_head *list, struct list_head *head, struct list_head *entry)
{
	if (entry == head)
		INIT_LIST_HEAD(list);
	else
		list_cut_before(list, head, entry->next);
}

#define list_entry(node, type, member)          container_of(node, type, member)
#define list_first_entry(head, type, member)    list_entry((head)->next, type, member)
#define list_last_entry(head, type, member)     list_entry((head)->prev, type, member)
#define list_next_entry(entry, member)          list_entry((entry)->member.next, __typeof__(*(entry)), member)
#define list_prev_entry(entry, member)          list_entry((entry)->member.prev, __typeof__(*(entry)), member)
#define list_entry_is_head(entry, head, member) (&(entry)->member == (head))
#define CPUSLAB_LIST_OR_NULL(head, node, type, member)                                                       \
	({                                                                                                   \
		struct list_head *cpuslab_head = (head), *cpuslab_node = READ_ONCE(cpuslab_head->node);      \
		cpuslab_node == cpuslab_head ? NULL : list_entry(cpuslab_node, type, member);                \
	})
#define list_first_entry_or_null(head, type, member) CPUSLAB_LIST_OR_NULL(head, next, type, member)
#define list_last_entry_or_null(head, type, member)  CPUSLAB_LIST_OR_NULL(head, prev, type, member)
/* These wrap around, past the head. */
#define list_next_entry_circular(entry, head, member)                                                        \
	(list_is_last(&(entry)->member, head) ? list_first_entry(head, __typeof__(*(entry)), member)         \
					      : list_next_entry(entry, member))
#define list_prev_entry_circular(entry, head, member)                                                        \
	(list_is_first(&(entry)->member, head) ? list_last_entry(head, __typeof__(*(entry)), member)         \
					       : list_prev_entry(entry, member))

/* The loops: start, direction (next or prev), and whether the current entry may be deleted. */
#define CPUSLAB_LIST_WALK(node, from, way, head) for (node = (from); node != (head); node = node->way)
#define CPUSLAB_LIST_WALK_SAFE(node, ahead, from, way, head)                                                 \
	for (node = (from), ahead = node->way; node != (head); node = ahead, ahead = node->way)
#define CPUSLAB_LIST_ENTRY_OF(entry, node, member) list_entry(node, __typeof__(*(entry)), member)
#define CPUSLAB_LIST_WALK_ENTRIES(entry, from, way, head, member)                                            \
	for (entry = (from); !list_entry_is_head(entry, head, member);                                       \
	     entry = CPUSLAB_LIST_ENTRY_OF(entry, (entry)->member.way, member))
#define CPUSLAB_LIST_WALK_ENTRIES_SAFE(entry, ahead, from, way, head, member)                                \
	for (entry = (from), ahead = CPUSLAB_LIST_ENTRY_OF(entry, (entry)->member.way, member);              \
	     !list_entry_is_head(entry, head, member);                                                       \
	     entry = ahead, ahead = CPUSLAB_LIST_ENTRY_OF(ahead, (ahead)->member.way, member))

#define list_for_each(node, head)             CPUSLAB_LIST_WALK(node, (head)->next, next, head)
#define list_for_each_continue(node, head)    CPUSLAB_LIST_WALK(node, (node)->next, next, head)
#define list_for_each_prev(node, head)        CPUSLAB_LIST_WALK(node, (head)->prev, prev, head)
#define list_for_each_safe(node, ahead, head) CPUSLAB_LIST_WALK_SAFE(node, ahead, (head)->next, next, head)
#define list_for_each_prev_safe(node, ahead, head)                                                           \
	CPUSLAB_LIST_WALK_SAFE(node, ahead, (head)->prev, prev, head)

#define list_for_each_entry(entry, head, member)                                                             \
	CPUSLAB_LIST_WALK_ENTRIES(entry, CPUSLAB_LIST_ENTRY_OF(entry, (head)->next, member), next, head,     \
				  member)
#define list_for_each_entry_reverse(entry, head, member)                                                     \
	CPUSLAB_LIST_WALK_ENTRIES(entry, CPUSLAB_LIST_ENTRY_OF(entry, (head)->prev, member), prev, head,     \
				  member)
/* Returns a place to continue from: for NULL, the head. */
#define list_prepare_entry(entry, head, member) ((entry) ?: CPUSLAB_LIST_ENTRY_OF(entry, head, member))
#define list_for_each_entry_continue(entry, head, member)                                                    \
	CPUSLAB_LIST_WALK_ENTRIES(entry, list_next_entry(entry, member), next, head, member)
#define list_for_each_entry_continue_reverse(entry, head, member)                                            \
	CPUSLAB_LIST_WALK_ENTRIES(entry, list_prev_entry(entry, member), prev, head, member)
#define list_for_each_entry_from(entry, head, member)                                                        \
	CPUSLAB_LIST_WALK_ENTRIES(entry, entry, next, head, member)
#define list_for_each_entry_from_reverse(entry, head, member)                                                \
	CPUSLAB_LIST_WALK_ENTRIES(entry, entry, prev, head, member)
#define list_for_each_entry_safe(entry, ahead, head, member)                                                 \
	CPUSLAB_LIST_WALK_ENTRIES_SAFE(entry, ahead, CPUSLAB_LIST_ENTRY_OF(entry, (head)->next, member),     \
				       next, head, member)
#define list_for_each_entry_safe_reverse(entry, ahead, head, member)                                         \
	CPUSLAB_LIST_WALK_ENTRIES_SAFE(entry, ahead, CPUSLAB_LIST_ENTRY_OF(entry, (head)->prev, member),     \
				       prev, head, member)
#define list_for_each_entry_safe_continue(entry, ahead, head, member)                                        \
	CPUSLAB_LIST_WALK_ENTRIES_SAFE(entry, ahead, list_next_entry(entry, member), next, head, member)
#define list_for_each_entry_safe_from(entry, ahead, head, member)                                            \
	CPUSLAB_LIST_WALK_ENTRIES_SAFE(entry, ahead, entry, next, head, member)
/* After such a loop gave up the lock: reads again what is ahead. */
#define list_safe_reset_next(entry, ahead, member) ahead = list_next_entry(entry, member)

/* ---- with a head of one pointer ------------------------------------------------------------------------ */

/* clang-format off */
#define HLIST_HEAD_INIT {NULL}
/* clang-format on */
#define HLIST_HEAD(name)      struct hlist_head name = HLIST_HEAD_INIT
#define INIT_HLIST_HEAD(head) ((head)->first = NULL)

static inline void INIT_HLIST_NODE(struct hlist_node *node)
{
	node->next = NULL;
	node->pprev = NULL;
}

/* Whether it is in no list: since INIT_HLIST_NODE or hlist_del_init. */
static inline int hlist_unhashed(const struct hlist_node *node)
{
	return !node->pprev;
}

static inline int hlist_unhashed_lockless(const struct hlist_node *node)
{
	return !READ_ONCE(node->pprev);
}

static inline int hlist_empty(const struct hlist_head *head)
{
	return !READ_ONCE(head->first);
}

/* Puts the node at `*place`, before the one that was there. */
static inline void cpuslab_hlist_put(struct hlist_node *node, struct hlist_node **place)
{
	node->next = *place;
	if (node->next)
		WRITE_ONCE(node->next->pprev, &node->next);
	WRITE_ONCE(node->pprev, place);
	WRITE_ONCE(*place, node);
}

static inline void hlist_add_head(struct hlist_node *node, struct hlist_head *head)
{
	cpuslab_hlist_put(node, &head->first);
}

static inline void hlist_add_before(struct hlist_node *node, struct hlist_node *next)
{
	cpuslab_hlist_put(node, next->pprev);
}

static inline void hlist_add_behind(struct hlist_node *node, struct hlist_node *before)
{
	cpuslab_hlist_put(node, &before->next);
}

/* Leaves the node's own pointers alone. */
static inline void __hlist_del(struct hlist_node *node)
{
	WRITE_ONCE(*node->pprev, node->next);
	if (node->next)
		WRITE_ONCE(node->next->pprev, node->pprev);
}

static inline void hlist_del(struct hlist_node *node)
{
	__hlist_del(node);
	node->next = (struct hlist_node *)LIST_POISON1;
	node->pprev = (struct hlist_node **)LIST_POISON2;
}

static inline void hlist_del_init(struct hlist_node *node)
{
	if (hlist_unhashed(node))
		return;
	__hlist_del(node);
	INIT_HLIST_NODE(node);
}

/* Makes hlist_del work on a node that is in no list. */
static inline void hlist_add_fake(struct hlist_node *node)
{
	node->pprev = &node->next;
}

static inline bool hlist_fake(struct hlist_node *node)
{
	return node->pprev == &node->next;
}

static inline bool hlist_is_singular_node(struct hlist_node *node, struct hlist_head *head)
{
	return !node->next && node->pprev == &head->first;
}

/* Moves all of it to another head, whose own entries are lost. */
static inline void hlist_move_list(struct hlist_head *from, struct hlist_head *to)
{
	to->first = from->first;
	if (to->first)
		to->first->pprev = &to->first;
	from->first = NULL;
}

/* Moves all of it, up to `last`, in front of the entries of `to`. */
static inline void hlist_splice_init(struct hlist_head *from, struct hlist_node *last, struct hlist_head *to)
{
	last->next = to->first;
	if (to->first)
		to->first->pprev = &last->next;
	hlist_move_list(from, to);
}

static inline size_t hlist_count_nodes(struct hlist_head *head)
{
	size_t count = 0;

	for (const struct hlist_node *node = head->first; node; node = node->next)
		count++;
	return count;
}

#define hlist_entry(node, type, member) container_of(node, type, member)
/* Returns NULL for NULL. */
#define hlist_entry_safe(node, type, member)                                                                 \
	({                                                                                                   \
		__typeof__(node) cpuslab_node = (node);                                                      \
		cpuslab_node ? hlist_entry(cpuslab_node, type, member) : NULL;                               \
	})

#define hlist_for_each(node, head) for (node = (head)->first; node; node = node->next)
#define hlist_for_each_safe(node, ahead, head)                                                               \
	for (node = (head)->first; node && (ahead = node->next, 1); node = ahead)

#define CPUSLAB_HLIST_ENTRY_OF(entry, node, member) hlist_entry_safe(node, __typeof__(*(entry)), member)
#define CPUSLAB_HLIST_WALK(entry, from, member)                                                              \
	for (entry = (from); entry; entry = CPUSLAB_HLIST_ENTRY_OF(entry, (entry)->member.next, member))
#define hlist_for_each_entry(entry, head, member)                                                            \
	CPUSLAB_HLIST_WALK(entry, CPUSLAB_HLIST_ENTRY_OF(entry, (head)->first, member), member)
#define hlist_for_each_entry_continue(entry, member)                                                         \
	CPUSLAB_HLIST_WALK(entry, CPUSLAB_HLIST_ENTRY_OF(entry, (entry)->member.next, member), member)
#define hlist_for_each_entry_from(entry, member) CPUSLAB_HLIST_WALK(entry, entry, member)
/* `ahead` is a struct hlist_node *. */
#define hlist_for_each_entry_safe(entry, ahead, head, member)                                                \
	for (entry = CPUSLAB_HLIST_ENTRY_OF(entry, (head)->first, member);                                   \
	     entry && (ahead = (entry)->member.next, 1);                                                     \
	     entry = CPUSLAB_HLIST_ENTRY_OF(entry, ahead, member))

#endif
