/* SPDX-License-Identifier: MIT */
/*
 * order: sorts the objects of a few magazines by address.
 *
 * Needs no lock: the magazines are in the caller's hand, and the room's only other memory is a block of
 * metadata of its own.
 */
#ifndef CPUSLAB_DEPOT_ORDER_H
#define CPUSLAB_DEPOT_ORDER_H

#include "depot/depot.h"

enum {
	ORDER_UNIT = 16, /* addresses of objects are multiples of this */
	ORDER_PAGES = 96 /* that the objects of one call may span */
};

/*
 * Whether among the objects that a magazine hands out first, some lie more than a page above their
 * predecessor and some as far below.
 */
bool order_is_missing(const struct magazine *magazine);
/*
 * Puts the lowest address on top of the first magazine, and so on.  False, with all magazines unchanged, if
 * the objects span more pages, of which each has few of them; if one occurs twice or is no object; or if
 * there is no memory.
 */
bool order_by_address(struct magazine *const *magazines, unsigned count);

#endif
