/* SPDX-License-Identifier: MIT */
#pragma GCC system_header
#ifndef CPUSLAB_UAPI
#error "cpuslab has no <linux/inet_diag.h>; define CPUSLAB_UAPI for the system's file of that name"
#else
#include_next <linux/inet_diag.h>
#endif
