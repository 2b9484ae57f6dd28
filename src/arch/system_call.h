/* SPDX-License-Identifier: MIT */
/*
 * The kernel's entry.  libc's functions for system calls can be replaced by the program or by a library that
 * is preloaded, whose own may allocate; besides, they are cancellation points, and set errno.
 */
#ifndef CPUSLAB_ARCH_SYSTEM_CALL_H
#define CPUSLAB_ARCH_SYSTEM_CALL_H

#if defined(__x86_64__)

/* Returns the kernel's result, a negative errno for an error. */
static inline long arch_system_call(long number, long a, long b, long c, long d, long e, long f)
{
	register long fourth __asm__("r10") = d;
	register long fifth __asm__("r8") = e;
	register long sixth __asm__("r9") = f;
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "0"(number), "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth), "r"(sixth)
			 : "rcx", "r11", "memory");
	return result;
}

/*
 * What the kernel lets a signal handler return to.  Without unwind information on purpose: unwinders know the
 * frame by these very instructions.
 */
#define ARCH_HAS_SIGNAL_RETURN 1
#define ARCH_DEFINE_SIGNAL_RETURN(name)                                                                      \
	__asm__(".pushsection .text\n"                                                                       \
		".balign 16\n"                                                                               \
		"nop\n" /* unwinders look up the address before the one that is returned to */               \
		".hidden " #name "\n"                                                                        \
		".globl " #name "\n"                                                                         \
		".type " #name ", @function\n" #name ":\n"                                                   \
		"movq $15, %rax\n" /* __NR_rt_sigreturn */                                                   \
		"syscall\n"                                                                                  \
		".size " #name ", . - " #name "\n"                                                           \
		".popsection\n")

#elif defined(__aarch64__)

static inline long arch_system_call(long number, long a, long b, long c, long d, long e, long f)
{
	register long at __asm__("x8") = number;
	register long first __asm__("x0") = a;
	register long second __asm__("x1") = b;
	register long third __asm__("x2") = c;
	register long fourth __asm__("x3") = d;
	register long fifth __asm__("x4") = e;
	register long sixth __asm__("x5") = f;

	__asm__ volatile("svc #0"
			 : "+r"(first)
			 : "r"(at), "r"(second), "r"(third), "r"(fourth), "r"(fifth), "r"(sixth)
			 : "memory");
	return first;
}

#define ARCH_HAS_SIGNAL_RETURN 0 /* the kernel has one of its own */

#else

#include <errno.h>
#include <unistd.h>

static inline long arch_system_call(long number, long a, long b, long c, long d, long e, long f)
{
	int saved = errno;
	long result = syscall(number, a, b, c, d, e, f);

	if (result == -1)
		result = -errno;
	errno = saved;
	return result;
}

#define ARCH_HAS_SIGNAL_RETURN 0

#endif
#endif
