/* SPDX-License-Identifier: MIT */
/*
 * order: puts the objects of a few magazines in order of address.
 *
 * Without a lock: the magazines are in the caller's hand, and what else it needs is a block of metadata of
 * its own.
 */
#ifndef CPUSLAB_DEPOT_ORDER_H
#define CPUSLAB_DEPOT_ORDER_H

#include "depot/depot.h"

enum {
	ORDER_UNIT = 16, /* addresses of objects are multiples of it */
	ORDER_PAGES = 96 /* in which the objects of one call may lie */
};

/*
 * Whether of the objects that are taken first from a magazine some lie far above the one before, and some far
 * below.
 */
bool order_is_missing(const struct magazine *magazine);
/*
 * The lowest comes to be the top of the first magazine, and so on.  False, with all of them as they were:
 * they lie in more pages, where few have a neighbour among them, or one is there twice, or is no object, or
 * there is no memory.
 */
bool order_by_address(struct magazine *const *magazines, unsigned count);

#endif
