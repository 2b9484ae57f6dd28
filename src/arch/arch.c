/* SPDX-License-Identifier: MIT */
#include "arch/arch.h"

uint64_t arch_section_aborts;
__thread uint32_t arch_aborts_in_row;

#if ARCH_HAS_RSEQ
ARCH_DEFINE_ABORTED("8");
_Static_assert(ARCH_ABORTS_MOST == 8, "the number in the asm");
#endif
