/* SPDX-License-Identifier: MIT */
/* <linux/slab.h> alone brings what the kernel's brings along, and numbers that the preprocessor can compare.
 */
#include <linux/slab.h>

#if BITS_PER_LONG != 64 || __GFP_BITS_SHIFT < 24 || NR_PAGE_ORDERS != MAX_PAGE_ORDER + 1
#error "not the numbers that they are"
#endif

struct counted {
	int count;
	struct list_head list;
};

static DEFINE_SPINLOCK(lock);
static const int sizes[] = {1, 2, 3};

static int add(struct list_head *list, int by)
{
	struct counted *of = container_of(list, struct counted, list);

	BUG_ON(!list);
	spin_lock(&lock);
	of->count += min(by, 2);
	spin_unlock(&lock);
	pr_devel("%d is not printed\n", of->count);
	return of->count;
}

int main(void)
{
	struct counted counted = {0};
	const gfp_t all = __GFP_BITS_MASK;

	BUG_ON(add(&counted.list, 3) != 2);
	BUG_ON(sizes[ARRAY_SIZE(sizes) - 1] != 3 || BIT(3) != 8 || ilog2(4096) != 12);
	/* Every flag lies in the mask, and the zones are some of them. */
	BUG_ON((GFP_HIGHUSER_MOVABLE | __GFP_NOLOCKDEP | __GFP_ACCOUNT) & ~all || GFP_ZONEMASK & ~all);
	BUG_ON((GFP_KERNEL & GFP_ZONEMASK) || !(GFP_DMA & GFP_ZONEMASK));
	BUG_ON(alloc_pages(GFP_KERNEL, NR_PAGE_ORDERS));
	pr_info("ok\n");
	return 0;
}
