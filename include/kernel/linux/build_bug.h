/* SPDX-License-Identifier: MIT */
/* For kernel sources in user space: checks at compile time. */
#pragma GCC system_header /* beside macros of these names: linux/compiler.h */
#ifndef CPUSLAB_LINUX_BUILD_BUG_H
#define CPUSLAB_LINUX_BUILD_BUG_H

#ifndef __cplusplus
#undef static_assert
/* With or without a message. */
#define static_assert(...)                           CPUSLAB_STATIC_ASSERT_TEXT(__VA_ARGS__, "not so: " #__VA_ARGS__, )
#define CPUSLAB_STATIC_ASSERT_TEXT(holds, text, ...) _Static_assert(holds, text)
#endif

/*
 * A statement.  The compiler rejects a call to a function with this attribute unless it has found that the
 * call is never made; so the condition may be one that only the optimizer sees to be constant.  Without
 * optimization, only constant expressions are checked.
 */
#ifdef __OPTIMIZE__
#define CPUSLAB_KNOWN(condition) (condition)
#else
#define CPUSLAB_KNOWN(condition) (__builtin_constant_p(condition) && (condition))
#endif
#define CPUSLAB_BUILD_BUG(condition, text, number)                                                           \
	do {                                                                                                 \
		extern void cpuslab_build_bug_##number(void) __attribute__((__error__(text)));               \
		if (CPUSLAB_KNOWN(condition))                                                                \
			cpuslab_build_bug_##number();                                                        \
	} while (0)
#define CPUSLAB_BUILD_BUG_NUMBERED(condition, text, number) CPUSLAB_BUILD_BUG(condition, text, number)

#define BUILD_BUG_ON_MSG(condition, text) CPUSLAB_BUILD_BUG_NUMBERED(condition, text, __COUNTER__)
#define BUILD_BUG_ON(condition)           BUILD_BUG_ON_MSG(condition, "BUILD_BUG_ON failed: " #condition)
#define BUILD_BUG_ON_NOT_POWER_OF_2(n)    BUILD_BUG_ON((n) == 0 || ((n) & ((n)-1)) != 0)

#endif
