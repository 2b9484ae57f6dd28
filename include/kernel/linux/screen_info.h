/* SPDX-License-Identifier: MIT */
#pragma GCC system_header
#if !defined(CPUSLAB_UAPI) && __INCLUDE_LEVEL__ == 1 /* the C library has uses for it */
#error "cpuslab has no <linux/screen_info.h>; define CPUSLAB_UAPI for the system's file of that name"
#else
#include_next <linux/screen_info.h>
#endif
