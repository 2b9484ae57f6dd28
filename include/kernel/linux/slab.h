/* SPDX-License-Identifier: MIT */
/* For kernel sources in user space: see docs/kmem.md. */
#ifndef CPUSLAB_LINUX_SLAB_H
#define CPUSLAB_LINUX_SLAB_H

#include <cpuslab/kmem.h>
#include <linux/gfp.h>
#include <linux/overflow.h>
#include <linux/types.h>

#endif
