/* SPDX-License-Identifier: MIT */
/* For kernel sources in user space: see docs/kmem.md. */
#ifndef CPUSLAB_LINUX_VMALLOC_H
#define CPUSLAB_LINUX_VMALLOC_H

#include <cpuslab/kmem.h>
#include <linux/overflow.h>

#endif
