/* SPDX-License-Identifier: MIT */
/* For kernel sources in user space: messages go to standard error. */
#pragma GCC system_header /* beside macros of these names: linux/compiler.h */
#ifndef CPUSLAB_LINUX_PRINTK_H
#define CPUSLAB_LINUX_PRINTK_H

#include <stdio.h>

#define KERN_ERR
#define KERN_WARNING
#define KERN_NOTICE
#define KERN_INFO
#define KERN_DEBUG
#define KERN_CONT
#ifndef pr_fmt
#define pr_fmt(format) format
#endif
#define printk(...)            fprintf(stderr, __VA_ARGS__)
#define pr_err(format, ...)    printk(pr_fmt(format), ##__VA_ARGS__)
#define pr_warn(format, ...)   printk(pr_fmt(format), ##__VA_ARGS__)
#define pr_notice(format, ...) printk(pr_fmt(format), ##__VA_ARGS__)
#define pr_info(format, ...)   printk(pr_fmt(format), ##__VA_ARGS__)
#define pr_cont(format, ...)   printk(format, ##__VA_ARGS__)
#define pr_debug(...)          ((void)0)
#define pr_devel(...)          ((void)0)

#endif
