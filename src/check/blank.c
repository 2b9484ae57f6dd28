/* SPDX-License-Identifier: MIT */
#include "check/blank.h"

bool blank_wide;

void blank_init(void)
{
#if ARCH_HAS_WIDE
	blank_wide = arch_finds_wide();
#endif
}
