/* SPDX-License-Identifier: MIT */
#include <errno.h>

#include "check/request.h"
#include "magazine/magazine.h"
#include "malloc/large_checks.h"
#include "malloc/malloc.h"
#include "process/process.h"

EXPORT long cpuslab_validate(const char *name)
{
	long damaged = 0;
	bool any = false;

	process_enter();
	magazine_keep_caches();
	for (unsigned number = 0; number < magazine_caches(); number++) {
		struct cache *cache = magazine_cache_number(number);

		if (!cache || !magazine_is_checked(cache) ||
		    (name && !check_request_matches(name, cache->depot.slabs.traits.name)))
			continue;
		any = true;
		damaged += (long)magazine_validate(cache);
	}
	magazine_let_caches_go();
	if (large_is_checked() && (!name || check_request_matches(name, "malloc-large"))) {
		any = true;
		damaged += (long)large_checks_validate();
	}
	if (any)
		return damaged;
	errno = ENOENT;
	return -1;
}
