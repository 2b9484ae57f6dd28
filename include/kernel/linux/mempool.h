/* SPDX-License-Identifier: MIT */
/* For kernel sources in user space: see docs/kmem.md. */
#pragma GCC system_header /* beside macros of these names: linux/compiler.h */
#ifndef CPUSLAB_LINUX_MEMPOOL_H
#define CPUSLAB_LINUX_MEMPOOL_H

#include <cpuslab/mempool.h>
#include <linux/compiler.h>

#endif
