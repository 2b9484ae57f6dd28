/* SPDX-License-Identifier: MIT */
/* For kernel sources in user space: init functions are plain functions, which the program calls. */
#pragma GCC system_header /* beside macros of these names: linux/compiler.h */
#ifndef CPUSLAB_LINUX_INIT_H
#define CPUSLAB_LINUX_INIT_H

#include <linux/compiler.h>

#endif
