/* SPDX-License-Identifier: MIT */
/*
 * The one place that needs C++: operator new(nothrow) must return NULL when the new-handler throws, or the
 * program's own operator new that it calls ([new.delete.single], default behaviour), so something has to
 * catch.
 *
 * Whatever throws exists only in a program with a C++ runtime.  The references to that runtime are
 * weak: a program without one can load the library all the same, and if one comes later, its own operator
 * catches what its handler throws (operators.c).
 */
#include <new>

#include "arch/weak.h"
#include "malloc/operators.h"

extern "C" {
#include "malloc/replaced.h"
}

ARCH_WEAK(__gxx_personality_v0);
ARCH_WEAK(__cxa_begin_catch);
ARCH_WEAK(__cxa_end_catch);
ARCH_WEAK(_ZSt9terminatev);

static void *new_by_program(std::size_t size, std::size_t alignment, bool array)
{
	std::align_val_t align{alignment};

	if (alignment)
		return array ? ::operator new[](size, align) : ::operator new(size, align);
	return array ? ::operator new[](size) : ::operator new(size);
}

void *operators_new_nothrow(std::size_t size, std::size_t alignment, bool array) noexcept
{
	try {
		return replaced_new(array, alignment != 0) ? new_by_program(size, alignment, array)
							   : operators_new(size, alignment, true);
	} catch (...) {
		return nullptr;
	}
}
