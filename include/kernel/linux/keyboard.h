/* SPDX-License-Identifier: MIT */
#pragma GCC system_header
#ifndef CPUSLAB_UAPI
#error "cpuslab has no <linux/keyboard.h>; define CPUSLAB_UAPI for the system's file of that name"
#else
#include_next <linux/keyboard.h>
#endif
