/* SPDX-License-Identifier: MIT */
/* For kernel sources in user space: from a member to the struct that contains it. */
#pragma GCC system_header /* beside macros of these names: linux/compiler.h */
#ifndef CPUSLAB_LINUX_CONTAINER_OF_H
#define CPUSLAB_LINUX_CONTAINER_OF_H

#include <stddef.h>

#define container_of(pointer, type, member) ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

#endif
