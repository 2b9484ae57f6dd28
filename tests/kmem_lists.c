/* SPDX-License-Identifier: MIT */
/*
 * <linux/list.h> against a plain array: after each of many random operations every list has the expected
 * entries, forwards and backwards, and each loop visits them.
 */
#include "check.h"

#include <linux/list.h>

enum { ENTRIES = 24, LISTS = 3 };

struct entry {
	int number;
	struct list_head link;
	struct hlist_node node;
};

static struct entry entries[ENTRIES];

/* A macro's internal names must not clash with the caller's. */
static struct entry *first_or_null(struct list_head *head_)
{
	return list_first_entry_or_null(head_, struct entry, link);
}

static struct entry *entry_or_null(struct hlist_node *node_)
{
	return hlist_entry_safe(node_, struct entry, node);
}

static void test_names(void)
{
	LIST_HEAD(list);

	CHECK(!first_or_null(&list) && !entry_or_null(NULL) &&
	      entry_or_null(&entries[1].node) == &entries[1]);
	list_add(&entries[2].link, &list);
	CHECK(first_or_null(&list) == &entries[2]);
	list_del(&entries[2].link);
}

/* ---- rings --------------------------------------------------------------------------------------------- */

static struct list_head heads[LISTS];
/* The expected entries of each list. */
static struct model {
	int count;
	int numbers[ENTRIES];
} models[LISTS];

static void model_insert(struct model *model, int at, int number)
{
	memmove(model->numbers + at + 1, model->numbers + at,
		(size_t)(model->count - at) * sizeof *model->numbers);
	model->numbers[at] = number;
	model->count++;
}

static int model_remove(struct model *model, int at)
{
	int number = model->numbers[at];

	model->count--;
	memmove(model->numbers + at, model->numbers + at + 1,
		(size_t)(model->count - at) * sizeof *model->numbers);
	return number;
}

/* Appends at the end. */
static void model_append(struct model *model, int number)
{
	model_insert(model, model->count, number);
}

static void model_move_all(struct model *from, struct model *to, int at)
{
	while (from->count) {
		int last = model_remove(from, from->count - 1);

		model_insert(to, at, last);
	}
}

static int model_of(int number, int *at)
{
	for (int list = 0; list < LISTS; list++)
		for (*at = 0; *at < models[list].count; ++*at)
			if (models[list].numbers[*at] == number)
				return list;
	return -1;
}

static void check_loops(struct list_head *head, const struct model *model)
{
	struct entry *entry, *ahead;
	struct list_head *node, *next;
	const int *numbers = model->numbers;
	int n = model->count, i;

#define SEES(loop, first, step, found)                                                                       \
	do {                                                                                                 \
		i = (first);                                                                                 \
		loop                                                                                         \
		{                                                                                            \
			CHECK(i >= 0 && i < n && (found) == numbers[i]);                                     \
			i += (step);                                                                         \
		}                                                                                            \
		CHECK(i == ((step) > 0 ? n : -1), "%d of %d", i, n);                                         \
	} while (0)
	SEES(list_for_each(node, head), 0, 1, list_entry(node, struct entry, link)->number);
	SEES(list_for_each_prev(node, head), n - 1, -1, list_entry(node, struct entry, link)->number);
	SEES(list_for_each_safe(node, next, head), 0, 1, list_entry(node, struct entry, link)->number);
	SEES(list_for_each_prev_safe(node, next, head), n - 1, -1,
	     list_entry(node, struct entry, link)->number);
	SEES(list_for_each_entry(entry, head, link), 0, 1, entry->number);
	SEES(list_for_each_entry_reverse(entry, head, link), n - 1, -1, entry->number);
	SEES(list_for_each_entry_safe(entry, ahead, head, link), 0, 1, entry->number);
	SEES(list_for_each_entry_safe_reverse(entry, ahead, head, link), n - 1, -1, entry->number);
	entry = NULL;
	entry = list_prepare_entry(entry, head, link);
	SEES(list_for_each_entry_continue(entry, head, link), 0, 1, entry->number);
	for (int from = 0; from < n; from++) {
		struct entry *at = &entries[numbers[from]];

		entry = at;
		SEES(list_for_each_entry_continue(entry, head, link), from + 1, 1, entry->number);
		entry = at;
		SEES(list_for_each_entry_continue_reverse(entry, head, link), from - 1, -1, entry->number);
		entry = at;
		SEES(list_for_each_entry_from(entry, head, link), from, 1, entry->number);
		entry = at;
		SEES(list_for_each_entry_from_reverse(entry, head, link), from, -1, entry->number);
		entry = at;
		SEES(list_for_each_entry_safe_from(entry, ahead, head, link), from, 1, entry->number);
		entry = at;
		SEES(list_for_each_entry_safe_continue(entry, ahead, head, link), from + 1, 1, entry->number);
		node = &at->link;
		SEES(list_for_each_continue(node, head), from + 1, 1,
		     list_entry(node, struct entry, link)->number);
		CHECK(list_next_entry_circular(at, head, link)->number == numbers[(from + 1) % n]);
		CHECK(list_prev_entry_circular(at, head, link)->number == numbers[(from + n - 1) % n]);
		CHECK(list_is_first(&at->link, head) == !from &&
		      list_is_last(&at->link, head) == (from == n - 1));
		CHECK(!list_is_head(&at->link, head) && !list_entry_is_head(at, head, link));
	}
	CHECK(list_empty(head) == !n && list_empty_careful(head) == !n && list_is_singular(head) == (n == 1));
	CHECK(list_count_nodes(head) == (size_t)n && list_is_head(head, head));
	entry = list_first_entry_or_null(head, struct entry, link);
	CHECK(n ? entry == list_first_entry(head, struct entry, link) && entry->number == *numbers : !entry);
	entry = list_last_entry_or_null(head, struct entry, link);
	CHECK(n ? entry == list_last_entry(head, struct entry, link) && entry->number == numbers[n - 1]
		: !entry);
	if (n > 1)
		CHECK(list_next_entry(&entries[*numbers], link)->number == numbers[1] &&
		      list_prev_entry(&entries[numbers[1]], link)->number == *numbers);
}

static void one_operation(uint64_t *random)
{
	int number = (int)check_below(random, ENTRIES), to = (int)check_below(random, LISTS), at, other_at;
	int other = (int)check_below(random, ENTRIES), list = model_of(number, &at);
	struct list_head *link = &entries[number].link, *head = &heads[to],
			 *of = list < 0 ? NULL : &heads[list];
	struct model *model = list < 0 ? NULL : &models[list], *aim = &models[to];
	int other_list = model_of(other, &other_at);
	bool other_model = list >= 0 && to != list;

	switch (check_below(random, 18)) {
	case 0:
		if (model)
			break;
		list_add(link, head);
		model_insert(aim, 0, number);
		break;
	case 1:
		if (model)
			break;
		list_add_tail(link, head);
		model_append(aim, number);
		break;
	case 2:
		if (!model)
			break;
		list_del(link);
		CHECK(link->next == LIST_POISON1 && link->prev == LIST_POISON2);
		model_remove(model, at);
		break;
	case 3:
		if (!model)
			break;
		if (number % 2)
			list_del_init(link);
		else
			list_del_init_careful(link);
		CHECK(list_empty(link) && list_empty_careful(link));
		model_remove(model, at);
		break;
	case 4:
		if (!model)
			break;
		list_move(link, head);
		model_remove(model, at);
		model_insert(aim, 0, number);
		break;
	case 5:
		if (!model)
			break;
		list_move_tail(link, head);
		model_remove(model, at);
		model_append(aim, number);
		break;
	case 6:
		if (!model || other_list >= 0)
			break;
		if (number % 2) {
			list_replace(link, &entries[other].link);
		} else {
			list_replace_init(link, &entries[other].link);
			CHECK(list_empty(link));
		}
		model->numbers[at] = other;
		break;
	case 7:
		if (!model || other_list < 0)
			break;
		list_swap(link, &entries[other].link);
		models[list].numbers[at] = other;
		models[other_list].numbers[other_at] = number;
		break;
	case 8:
		if (!model || other_list != list || other_at < at)
			break;
		list_bulk_move_tail(head, link, &entries[other].link);
		for (int i = at; i <= other_at; i++)
			model_append(aim, model_remove(model, at));
		break;
	case 9:
		list_rotate_left(head);
		if (aim->count)
			model_append(aim, model_remove(aim, 0));
		break;
	case 10:
		if (!model)
			break;
		list_rotate_to_front(link, of);
		for (int i = 0; i < at; i++)
			model_append(model, model_remove(model, 0));
		break;
	case 11:
		if (!other_model)
			break;
		list_splice_init(of, head);
		model_move_all(model, aim, 0);
		break;
	case 12:
		if (!other_model)
			break;
		list_splice_tail_init(of, head);
		model_move_all(model, aim, aim->count);
		break;
	case 13:
		if (!other_model)
			break;
		list_splice(of, head);
		INIT_LIST_HEAD(of);
		model_move_all(model, aim, 0);
		break;
	case 14:
		if (!other_model)
			break;
		list_splice_tail(of, head);
		INIT_LIST_HEAD(of);
		model_move_all(model, aim, aim->count);
		break;
	case 15:
		if (!other_model || aim->count)
			break;
		list_cut_position(head, of, link);
		for (int i = 0; i <= at; i++)
			model_insert(aim, i, model_remove(model, 0));
		break;
	case 16:
		if (!other_model || aim->count)
			break;
		list_cut_before(head, of, link);
		for (int i = 0; i < at; i++)
			model_insert(aim, i, model_remove(model, 0));
		break;
	default:
		/* A head is moved like an entry. */
		if (!other_model || aim->count)
			break;
		list_replace_init(of, head);
		model_move_all(model, aim, 0);
	}
}

static void test_rings(void)
{
	uint64_t random = 11;
	LIST_HEAD(named);

	CHECK(list_empty(&named));
	for (int list = 0; list < LISTS; list++)
		INIT_LIST_HEAD(&heads[list]);
	for (unsigned long round = check_rounds(30000, 1000000, 300); round; round--) {
		one_operation(&random);
		for (int list = 0; list < LISTS; list++)
			check_loops(&heads[list], &models[list]);
	}
}

/* The safe loops may delete the current entry. */
static void test_safe(void)
{
	struct entry *entry, *ahead;
	LIST_HEAD(list);
	int seen = 0;

	for (int i = 0; i < ENTRIES; i++)
		list_add_tail(&entries[i].link, &list);
	list_for_each_entry_safe(entry, ahead, &list, link)
	{
		CHECK(entry->number == seen++);
		list_del(&entry->link);
	}
	CHECK(seen == ENTRIES && list_empty(&list));
	for (int i = 0; i < ENTRIES; i++)
		list_add_tail(&entries[i].link, &list);
	seen = 0;
	list_for_each_entry_safe(entry, ahead, &list, link)
	{
		/* As if others had deleted the entries ahead while the lock was released. */
		if (!list_entry_is_head(ahead, &list, link) && entry->number % 2 == 0)
			list_del(&ahead->link);
		list_safe_reset_next(entry, ahead, link);
		seen++;
	}
	CHECK(seen == ENTRIES / 2 && list_count_nodes(&list) == ENTRIES / 2);
}

/* ---- with a head of one pointer ------------------------------------------------------------------------ */

static void check_hlist(struct hlist_head *head, const int *numbers, int count)
{
	struct hlist_node *node, *ahead;
	struct entry *entry;
	int i = 0;

	hlist_for_each(node, head)
		CHECK(i < count && hlist_entry(node, struct entry, node)->number == numbers[i++]);
	CHECK(i == count && hlist_count_nodes(head) == (size_t)count && hlist_empty(head) == !count);
	i = 0;
	hlist_for_each_safe(node, ahead, head)
		CHECK(hlist_entry(node, struct entry, node)->number == numbers[i++]);
	CHECK(i == count);
	i = 0;
	hlist_for_each_entry(entry, head, node)
	{
		CHECK(entry->number == numbers[i++] && !hlist_unhashed(&entry->node));
		CHECK(hlist_is_singular_node(&entry->node, head) == (count == 1));
	}
	CHECK(i == count && !entry);
	i = 0;
	hlist_for_each_entry_safe(entry, node, head, node) CHECK(entry->number == numbers[i++]);
	CHECK(i == count);
	for (int from = 0; from < count; from++) {
		entry = &entries[numbers[from]];
		i = from;
		hlist_for_each_entry_from(entry, node) CHECK(entry->number == numbers[i++]);
		CHECK(i == count);
		entry = &entries[numbers[from]];
		i = from + 1;
		hlist_for_each_entry_continue(entry, node) CHECK(entry->number == numbers[i++]);
		CHECK(i == count);
	}
}

static void test_hlist(void)
{
	struct hlist_head head = HLIST_HEAD_INIT, other, more;
	struct hlist_node *node, fake;
	struct entry *entry;
	HLIST_HEAD(named);

	CHECK(hlist_empty(&named));
	INIT_HLIST_HEAD(&other);
	INIT_HLIST_HEAD(&more);
	for (int i = 0; i < ENTRIES; i++) {
		INIT_HLIST_NODE(&entries[i].node);
		CHECK(hlist_unhashed(&entries[i].node) && hlist_unhashed_lockless(&entries[i].node));
		hlist_del_init(&entries[i].node);
	}
	hlist_add_head(&entries[3].node, &head);
	check_hlist(&head, (int[]){3}, 1);
	hlist_add_head(&entries[1].node, &head);
	hlist_add_before(&entries[2].node, &entries[3].node);
	hlist_add_before(&entries[0].node, &entries[1].node);
	hlist_add_behind(&entries[5].node, &entries[3].node);
	hlist_add_behind(&entries[4].node, &entries[3].node);
	check_hlist(&head, (int[]){0, 1, 2, 3, 4, 5}, 6);
	hlist_del(&entries[2].node);
	CHECK(entries[2].node.next == LIST_POISON1 && (void *)entries[2].node.pprev == LIST_POISON2);
	hlist_del_init(&entries[0].node);
	hlist_del_init(&entries[5].node);
	CHECK(hlist_unhashed(&entries[0].node) && hlist_unhashed(&entries[5].node));
	check_hlist(&head, (int[]){1, 3, 4}, 3);
	hlist_move_list(&head, &other);
	check_hlist(&head, NULL, 0);
	check_hlist(&other, (int[]){1, 3, 4}, 3);
	hlist_add_head(&entries[9].node, &more);
	hlist_splice_init(&other, &entries[4].node, &more);
	check_hlist(&other, NULL, 0);
	check_hlist(&more, (int[]){1, 3, 4, 9}, 4);
	hlist_splice_init(&more, &entries[9].node, &head);
	check_hlist(&head, (int[]){1, 3, 4, 9}, 4);
	hlist_for_each_entry_safe(entry, node, &head, node) hlist_del_init(&entry->node);
	CHECK(hlist_empty(&head));
	INIT_HLIST_NODE(&fake);
	hlist_add_fake(&fake);
	CHECK(hlist_fake(&fake) && !hlist_unhashed(&fake));
	hlist_del_init(&fake);
	CHECK(hlist_unhashed(&fake) && !hlist_entry_safe((struct hlist_node *)NULL, struct entry, node));
}

int main(void)
{
	check_watchdog(100);
	test_names();
	for (int i = 0; i < ENTRIES; i++)
		entries[i].number = i;
	test_rings();
	test_safe();
	test_hlist();
	return 0;
}
