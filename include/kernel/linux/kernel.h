/* SPDX-License-Identifier: MIT */
/* For kernel sources in user space: arithmetic and messages, most of it in headers of their own. */
#pragma GCC system_header /* beside macros of these names: linux/compiler.h */
#include_next <linux/kernel.h>
#ifndef CPUSLAB_LINUX_KERNEL_H
#define CPUSLAB_LINUX_KERNEL_H

#include <cpuslab/kmem.h>
#include <linux/build_bug.h>
#include <linux/compiler.h>
#include <linux/container_of.h>
#include <linux/log2.h>
#include <linux/math.h>
#include <linux/minmax.h>
#include <linux/printk.h>
#include <linux/stddef.h>
#include <linux/types.h>
#include <stdarg.h>
#include <stdio.h>

#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))

/* Marks a place that may sleep, where the kernel checks that it may. */
#define might_sleep()         ((void)0)
#define might_sleep_if(maybe) ((void)(maybe))

/* Allocates a string as large as the formatted text; NULL when memory is short. */
static inline __attribute__((__format__(__printf__, 2, 0))) char *kvasprintf(gfp_t flags, const char *format,
									     va_list arguments)
{
	va_list again;

	va_copy(again, arguments);
	int length = vsnprintf(NULL, 0, format, again);

	va_end(again);
	char *text = length < 0 ? NULL : (char *)kmalloc((size_t)length + 1, flags);

	if (text)
		vsnprintf(text, (size_t)length + 1, format, arguments);
	return text;
}

static inline __attribute__((__format__(__printf__, 2, 3))) char *kasprintf(gfp_t flags, const char *format,
									    ...)
{
	va_list arguments;

	va_start(arguments, format);
	char *text = kvasprintf(flags, format, arguments);

	va_end(arguments);
	return text;
}

#endif
