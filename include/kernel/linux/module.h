/* SPDX-License-Identifier: MIT */
/*
 * For kernel sources in user space: what a module declares about itself is ignored.  There is no
 * module_init(): the program calls the function itself.
 */
#pragma GCC system_header /* beside macros of these names: linux/compiler.h */
#include_next <linux/module.h>
#ifndef CPUSLAB_LINUX_MODULE_H
#define CPUSLAB_LINUX_MODULE_H

#include <linux/export.h>
#include <linux/init.h>

struct module;

#define THIS_MODULE ((struct module *)0)

#define CPUSLAB_MODULE_SAYS      extern struct module cpuslab_no_module
#define MODULE_LICENSE(text)     CPUSLAB_MODULE_SAYS
#define MODULE_AUTHOR(text)      CPUSLAB_MODULE_SAYS
#define MODULE_DESCRIPTION(text) CPUSLAB_MODULE_SAYS
#define MODULE_VERSION(text)     CPUSLAB_MODULE_SAYS
#define MODULE_ALIAS(text)       CPUSLAB_MODULE_SAYS
#define MODULE_IMPORT_NS(space)  CPUSLAB_MODULE_SAYS
#define MODULE_SOFTDEP(text)     CPUSLAB_MODULE_SAYS

#endif
