/* SPDX-License-Identifier: MIT */
#include "malloc/replaced.h"

#include <stdlib.h>

#include "arch/arch.h"
#include "malloc/operators.h"
#include "malloc/own.h"

/* Hidden from the compiler, which would take two names for two functions. */
static bool differs(const void *programs, const void *ours)
{
	ARCH_HIDE(programs);
	return programs != ours;
}

#define IS_REPLACED(name) differs((const void *)(name), (const void *)own_##name)

bool replaced_aligned_alloc(void)
{
	return IS_REPLACED(aligned_alloc);
}

bool replaced_new(bool array, bool aligned)
{
	if (aligned)
		return IS_REPLACED(_ZnwmSt11align_val_t) || (array && IS_REPLACED(_ZnamSt11align_val_t));
	return IS_REPLACED(_Znwm) || (array && IS_REPLACED(_Znam));
}

static bool replaced_delete(void)
{
	return IS_REPLACED(_ZdlPv) || IS_REPLACED(_ZdaPv) || IS_REPLACED(_ZdlPvSt11align_val_t) ||
	       IS_REPLACED(_ZdaPvSt11align_val_t);
}

static bool look(void)
{
	return IS_REPLACED(malloc) || IS_REPLACED(free) || IS_REPLACED(aligned_alloc) ||
	       replaced_new(true, false) || replaced_new(true, true) || replaced_delete();
}

/* The answer never changes, so that two threads may look at once. */
bool replaced_any(void)
{
	static enum { UNKNOWN, NO, YES } any;

	if (__atomic_load_n(&any, __ATOMIC_RELAXED) == UNKNOWN)
		__atomic_store_n(&any, look() ? YES : NO, __ATOMIC_RELAXED);
	return any == YES;
}
