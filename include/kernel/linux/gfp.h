/* SPDX-License-Identifier: MIT */
/* For kernel sources in user space: see docs/kmem.md. */
#pragma GCC system_header /* beside macros of these names: linux/compiler.h */
#ifndef CPUSLAB_LINUX_GFP_H
#define CPUSLAB_LINUX_GFP_H

#include <cpuslab/gfp.h>
#include <linux/cleanup.h>
#include <linux/types.h>

DEFINE_FREE(free_page, void *, free_page((unsigned long)_T))

#endif
