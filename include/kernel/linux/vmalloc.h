/* SPDX-License-Identifier: MIT */
/* For kernel sources in user space: see docs/kmem.md. */
#pragma GCC system_header /* beside macros of these names: linux/compiler.h */
#ifndef CPUSLAB_LINUX_VMALLOC_H
#define CPUSLAB_LINUX_VMALLOC_H

#include <cpuslab/kmem.h>
#include <linux/cleanup.h>
#include <linux/err.h>
#include <linux/overflow.h>

DEFINE_FREE(vfree, void *, if (!IS_ERR_OR_NULL(_T)) vfree(_T))

#endif
