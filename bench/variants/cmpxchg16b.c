/* SPDX-License-Identifier: MIT */
/* Both words by one `lock cmpxchg16b`. */
#define VARIANT_NAME cmpxchg16b
#include "names.h"

#include "arch/arch.h"

#if ARCH_HAS_PAIR

#include "pair_front.h"

static inline bool pair_replace(struct pair_front *front, const uint64_t expected[2],
				const uint64_t desired[2])
{
	return arch_replace_pair(front->pair, expected, desired);
}

#define LINKED_FRONT  "pair_front.h"
#define VARIANT_TITLE "cmpxchg16b"
#include "variant.h"

#else
typedef int cmpxchg16b_is_empty; /* a translation unit is not */
#endif
