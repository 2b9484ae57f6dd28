/* SPDX-License-Identifier: MIT */
/* For kernel sources in user space: multiples.  round_up() and round_down() are for powers of two. */
#pragma GCC system_header /* beside macros of these names: linux/compiler.h */
#ifndef CPUSLAB_LINUX_MATH_H
#define CPUSLAB_LINUX_MATH_H

#define ALIGN(x, alignment)      (((x) + (__typeof__(x))(alignment)-1) & ~((__typeof__(x))(alignment)-1))
#define ALIGN_DOWN(x, alignment) ((x) & ~((__typeof__(x))(alignment)-1))
#define IS_ALIGNED(x, alignment) (((x) & ((__typeof__(x))(alignment)-1)) == 0)
#define PTR_ALIGN(p, alignment)  ((__typeof__(p))(void *)ALIGN((unsigned long)(p), alignment))
#define round_up(x, unit)        ALIGN(x, unit)
#define round_down(x, unit)      ALIGN_DOWN(x, unit)
#ifndef DIV_ROUND_UP
#define DIV_ROUND_UP(x, unit) (((x) + (unit)-1) / (unit))
#endif
/* To any multiple; <sys/param.h> defines it, too. */
#ifndef roundup
#define roundup(x, unit) (((x) + ((unit)-1)) / (unit) * (unit))
#endif
#define rounddown(x, unit) ((x) - (x) % (unit))

#endif
