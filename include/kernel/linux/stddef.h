/* SPDX-License-Identifier: MIT */
/* For kernel sources in user space: sizes and ends of members. */
#pragma GCC system_header /* beside macros of these names: linux/compiler.h */
#include_next <linux/stddef.h>
#ifndef CPUSLAB_LINUX_STDDEF_H
#define CPUSLAB_LINUX_STDDEF_H

#include <stdbool.h>
#include <stddef.h>

#define sizeof_field(type, member) sizeof(((type *)0)->member)
/* The offset of the first byte after the member. */
#define offsetofend(type, member) (offsetof(type, member) + sizeof_field(type, member))

/* Members that can also be named as one, so that the compiler knows the size of a copy of them all. */
#define struct_group(name, ...)                  struct_group_attr(name, , __VA_ARGS__)
#define struct_group_attr(name, attributes, ...) struct_group_tagged_attr(, name, attributes, __VA_ARGS__)
#define struct_group_tagged(tag, name, ...)      struct_group_tagged_attr(tag, name, , __VA_ARGS__)
#define struct_group_tagged_attr(tag, name, attributes, ...)                                                 \
	union {                                                                                              \
		struct {                                                                                     \
			__VA_ARGS__                                                                          \
		} attributes;                                                                                \
		struct tag {                                                                                 \
			__VA_ARGS__                                                                          \
		} attributes name;                                                                           \
	} attributes

/* A flexible array where C demands a member before it: in a union, or alone in a struct. */
#ifdef __cplusplus
#define DECLARE_FLEX_ARRAY(type, name) type name[0]
#else
#define DECLARE_FLEX_ARRAY(type, name)                                                                       \
	struct {                                                                                             \
		struct {                                                                                     \
		} cpuslab_before_##name;                                                                     \
		type name[];                                                                                 \
	}
#endif

#endif
