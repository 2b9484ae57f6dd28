/* SPDX-License-Identifier: MIT */
/* For kernel sources in user space: arithmetic and messages. */
#ifndef CPUSLAB_LINUX_KERNEL_H
#define CPUSLAB_LINUX_KERNEL_H

#include_next <linux/kernel.h>

#include <cpuslab/kmem.h>
#include <linux/compiler.h>
#include <linux/log2.h>
#include <linux/types.h>
#include <stdarg.h>
#include <stdio.h>

#define container_of(pointer, type, member) ((type *)(void *)((char *)(pointer)-offsetof(type, member)))
#define ARRAY_SIZE(array)                   (sizeof(array) / sizeof((array)[0]))

#define ALIGN(x, alignment)      (((x) + (__typeof__(x))(alignment)-1) & ~((__typeof__(x))(alignment)-1))
#define ALIGN_DOWN(x, alignment) ((x) & ~((__typeof__(x))(alignment)-1))
#define IS_ALIGNED(x, alignment) (((x) & ((__typeof__(x))(alignment)-1)) == 0)
#define round_up(x, unit)        ALIGN(x, unit)
#define round_down(x, unit)      ALIGN_DOWN(x, unit)
#ifndef DIV_ROUND_UP
#define DIV_ROUND_UP(x, unit) (((x) + (unit)-1) / (unit))
#endif
/* To any unit; <sys/param.h> has it, too. */
#ifndef roundup
#define roundup(x, unit) (((x) + ((unit)-1)) / (unit) * (unit))
#endif
#define rounddown(x, unit) ((x) - (x) % (unit))

#define min_t(type, a, b)                                                                                    \
	({                                                                                                   \
		type min_a_ = (a), min_b_ = (b);                                                             \
		min_a_ < min_b_ ? min_a_ : min_b_;                                                           \
	})
#define max_t(type, a, b)                                                                                    \
	({                                                                                                   \
		type max_a_ = (a), max_b_ = (b);                                                             \
		max_a_ > max_b_ ? max_a_ : max_b_;                                                           \
	})
#ifndef __cplusplus
/* Each in its own type: the comparison finds one for both, which the kernel allows since 6.7. */
#define min(a, b)                                                                                            \
	({                                                                                                   \
		__typeof__(a) min_a_ = (a);                                                                  \
		__typeof__(b) min_b_ = (b);                                                                  \
		min_a_ < min_b_ ? min_a_ : min_b_;                                                           \
	})
#define max(a, b)                                                                                            \
	({                                                                                                   \
		__typeof__(a) max_a_ = (a);                                                                  \
		__typeof__(b) max_b_ = (b);                                                                  \
		max_a_ > max_b_ ? max_a_ : max_b_;                                                           \
	})
#define clamp(x, low, high) min(max(x, low), high)
#define swap(a, b)                                                                                           \
	do {                                                                                                 \
		__typeof__(a) swap_ = (a);                                                                   \
		(a) = (b);                                                                                   \
		(b) = swap_;                                                                                 \
	} while (0)
#endif

/* A string as large as what it says; NULL when there is no memory. */
static inline __attribute__((format(printf, 2, 0))) char *kvasprintf(gfp_t flags, const char *format,
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

static inline __attribute__((format(printf, 2, 3))) char *kasprintf(gfp_t flags, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	char *text = kvasprintf(flags, format, arguments);

	va_end(arguments);
	return text;
}

#define KERN_ERR
#define KERN_WARNING
#define KERN_INFO
#define KERN_DEBUG
#define printk(...)   fprintf(stderr, __VA_ARGS__)
#define pr_err(...)   printk(__VA_ARGS__)
#define pr_warn(...)  printk(__VA_ARGS__)
#define pr_info(...)  printk(__VA_ARGS__)
#define pr_debug(...) ((void)0)

#endif
