/* SPDX-License-Identifier: MIT */
/* Drives lib/btree.c of a kernel: 20,000 keys in, found, updated, and out in another order. */
#include <linux/slab.h>
#include <linux/btree.h>

int run_btree(void);

enum { KEYS = 20000, STRIDE = 7919 };

static u32 key_of(unsigned i)
{
	return (u32)(i * 2654435761u) | 1;
}

int main(void)
{
	struct btree_head32 head;
	static unsigned values[KEYS];

	BUG_ON(run_btree());
	BUG_ON(btree_init32(&head));
	for (unsigned i = 0; i < KEYS; i++)
		BUG_ON(btree_insert32(&head, key_of(i), &values[i], GFP_KERNEL));
	for (unsigned i = 0; i < KEYS; i++)
		BUG_ON(btree_lookup32(&head, key_of(i)) != &values[i]);
	BUG_ON(btree_update32(&head, key_of(1), &values[0]));
	BUG_ON(btree_lookup32(&head, key_of(1)) != &values[0]);
	for (unsigned n = 0, i = 0; n < KEYS; n++, i = (i + STRIDE) % KEYS) {
		BUG_ON(btree_remove32(&head, key_of(i)) != &values[i == 1 ? 0 : i]);
		BUG_ON(btree_lookup32(&head, key_of(i)));
	}
	u32 key;

	BUG_ON(btree_last32(&head, &key));
	btree_destroy32(&head);
	return 0;
}
