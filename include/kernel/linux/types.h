/* SPDX-License-Identifier: MIT */
/* For kernel sources in user space: the system's types and the kernel's own names. */
#pragma GCC system_header /* beside macros of these names: linux/compiler.h */
#include_next <linux/types.h>
#ifndef CPUSLAB_LINUX_TYPES_H
#define CPUSLAB_LINUX_TYPES_H

#include <cpuslab/gfp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int8_t s8;
typedef int16_t s16;
typedef int32_t s32;
typedef int64_t s64;

/* For linux/list.h. */
struct list_head {
	struct list_head *next, *prev;
};

struct hlist_node {
	struct hlist_node *next, **pprev; /* points at the pointer to this node */
};

struct hlist_head {
	struct hlist_node *first;
};

#define BITS_PER_BYTE       8
#define BITS_PER_LONG       64 /* a number, for #if; the library is for 64-bit machines */
#define BITS_TO_LONGS(bits) (((bits) + BITS_PER_LONG - 1) / BITS_PER_LONG)

#endif
