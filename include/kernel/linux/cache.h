/* SPDX-License-Identifier: MIT */
/* For kernel sources in user space: cache lines of 64 bytes, as for SLAB_HWCACHE_ALIGN. */
#pragma GCC system_header /* beside macros of these names: linux/compiler.h */
#ifndef CPUSLAB_LINUX_CACHE_H
#define CPUSLAB_LINUX_CACHE_H

#include <linux/compiler.h>

#define L1_CACHE_SHIFT    6
#define L1_CACHE_BYTES    (1 << L1_CACHE_SHIFT)
#define SMP_CACHE_BYTES   L1_CACHE_BYTES
#define L1_CACHE_ALIGN(x) (((x) + (__typeof__(x))L1_CACHE_BYTES - 1) & ~((__typeof__(x))L1_CACHE_BYTES - 1))
#define cache_line_size() L1_CACHE_BYTES

#endif
