/* SPDX-License-Identifier: MIT */
/* For kernel sources in user space: the C library's, and the copies that are allocated. */
#ifndef CPUSLAB_LINUX_STRING_H
#define CPUSLAB_LINUX_STRING_H

#include <cpuslab/kmem.h>
#include <string.h>

#endif
