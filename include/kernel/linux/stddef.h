/* SPDX-License-Identifier: MIT */
/* For kernel sources in user space: members' sizes and ends. */
#ifndef CPUSLAB_LINUX_STDDEF_H
#define CPUSLAB_LINUX_STDDEF_H

#include_next <linux/stddef.h>

#include <stdbool.h>
#include <stddef.h>

#define sizeof_field(type, member) sizeof(((type *)0)->member)
/* The first byte behind it. */
#define offsetofend(type, member) (offsetof(type, member) + sizeof_field(type, member))

#endif
