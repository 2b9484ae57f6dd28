/* SPDX-License-Identifier: MIT */
#include "arch/arch.h"

uint64_t arch_section_aborts;
