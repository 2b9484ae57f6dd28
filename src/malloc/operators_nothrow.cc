/* SPDX-License-Identifier: MIT */
/*
 * The one place that needs C++: operator new(nothrow) must return NULL when the new-handler throws
 * ([new.delete.single], default behaviour), so something has to catch.
 *
 * A handler that throws exists only in a program with a C++ runtime.  The references to that runtime are
 * weak: a program without one can load the library all the same, and if one comes later, its own operator
 * catches what its handler throws (operators.c).
 */
#include "malloc/operators.h"

#include "arch/weak.h"

ARCH_WEAK(__gxx_personality_v0);
ARCH_WEAK(__cxa_begin_catch);
ARCH_WEAK(__cxa_end_catch);
ARCH_WEAK(_ZSt9terminatev);

void *operators_new_nothrow(size_t size, size_t alignment) noexcept
{
	try {
		return operators_new_again(size, alignment, true);
	} catch (...) {
		return nullptr;
	}
}
