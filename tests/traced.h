/* SPDX-License-Identifier: MIT */
/*
 * traced: a forked child that is stopped at instructions of its choice, or of the tracer's.  The child marks
 * the begin and end of an operation by TRACED_TRAP(); the tracer goes from one trap to the next, by single
 * steps or to hardware breakpoints. x86-64 alone.
 */
#ifndef CPUSLAB_TESTS_TRACED_H
#define CPUSLAB_TESTS_TRACED_H

#include "check.h"

#include <stddef.h>
#include <sys/ptrace.h>
#include <sys/user.h>

/* The tracer sees SIGTRAP with the instruction pointer behind these. */
#define TRACED_TRAP() __asm__ volatile("int3" ::: "memory")

static pid_t child;
/* What the child was doing; NULL where it may end. */
static const char *traced_doing(void);

/* Waits for the child's next stop by SIGTRAP; false when it has ended. */
static bool wait_trap(void)
{
	int status;
	for (;;) {
		CHECK(waitpid(child, &status, 0) == child);
		if (WIFEXITED(status) || WIFSIGNALED(status)) {
			const char *doing = traced_doing();
			CHECK(!doing, "the child ended with wait status %#x in: %s", (unsigned)status, doing);
			CHECK_EXITED(status, 0);
			return false;
		}
		if (WSTOPSIG(status) == SIGTRAP)
			return true;
		CHECK(ptrace(PTRACE_CONT, child, NULL, (void *)(uintptr_t)WSTOPSIG(status)) == 0);
	}
}

static bool go_on(void)
{
	CHECK(ptrace(PTRACE_CONT, child, NULL, NULL) == 0);
	return wait_trap();
}

static uintptr_t instruction_pointer(void)
{
	struct user_regs_struct registers;
	CHECK(ptrace(PTRACE_GETREGS, child, NULL, &registers) == 0);
	return registers.rip;
}

/* At an int3: the operation's own end. */
static bool at_own_trap(void)
{
	siginfo_t information;
	CHECK(ptrace(PTRACE_GETSIGINFO, child, NULL, &information) == 0);
	return information.si_code == SI_KERNEL;
}

/* A section's descriptor, as the compiler emits it for the kernel. */
struct section {
	uint32_t version, flags;
	uint64_t start, length, abort;
};
extern const struct section first_section[] __asm__("__start___rseq_cs") __attribute__((weak));
extern const struct section last_section[] __asm__("__stop___rseq_cs") __attribute__((weak));

/* Where a section may be left other than by its end: pairs of a section's start and such an address. */
struct exit_point {
	uint64_t start, address;
};
extern const struct exit_point first_exit[] __asm__("__start___rseq_exit_point_array") __attribute__((weak));
extern const struct exit_point last_exit[] __asm__("__stop___rseq_exit_point_array") __attribute__((weak));

static void set_debug_register(unsigned number, uintptr_t value)
{
	size_t offset = offsetof(struct user, u_debugreg) + number * sizeof(unsigned long);
	if (ptrace(PTRACE_POKEUSER, child, (void *)offset, (void *)value) != 0)
		check_skip("no hardware breakpoints: %s", strerror(errno));
}

static const struct section *section_at(uintptr_t address)
{
	for (const struct section *section = first_section; first_section && section < last_section;
	     section++)
		if (address - section->start < section->length)
			return section;
	return NULL;
}

/* As debuggers do: stops at a section's start, and from there runs to its end or to one of its exits. */
static void step_over(const struct section *section)
{
	uintptr_t targets[4] = {section->start + section->length}, control = 0;
	unsigned breakpoints = 1;
	for (const struct exit_point *point = first_exit; first_exit && point < last_exit; point++)
		if (point->start == section->start && breakpoints < 4)
			targets[breakpoints++] = point->address;
	for (unsigned i = 0; i < breakpoints; i++) {
		set_debug_register(i, targets[i]);
		control |= 1ul << 2 * i;
	}
	set_debug_register(7, control);
	CHECK(go_on());
	set_debug_register(7, 0);
}

/* Starts `be_traced` in a child that stops itself by SIGSTOP when it is ready. */
static void traced_begin(void (*be_traced)(void))
{
	child = fork();
	CHECK(child >= 0);
	if (child == 0)
		be_traced();
	int status;
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP,
	      "the child cannot be traced: wait status %#x", (unsigned)status);
	ptrace(PTRACE_SETOPTIONS, child, NULL, (void *)PTRACE_O_EXITKILL);
}

#endif
