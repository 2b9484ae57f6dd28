/* SPDX-License-Identifier: MIT */
/*
 * A library in front of libc's functions: those of names.h, each as a few instructions that keep all
 * arguments and jump to libc's own behind shim_enter(), which allocates, looks a symbol up and takes a lock.
 *
 * Which of them the allocator calls itself is noted, and printed at the end into the file SHIM_LOG: those
 * during an allocation or a free of the shim's own, which would come round and round without the shim's care,
 * with a '!'.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME(name) #name,
static const char *const names[] = {
#include "names.h"
};
#undef NAME
enum { NAMES = sizeof names / sizeof *names };

static void *real[NAMES];
static unsigned char called[NAMES];
static uintptr_t library_start, library_end;
static __thread bool inside __attribute__((tls_model("initial-exec")));
static int lock;

static int find_library(struct dl_phdr_info *info, size_t size, void *unused)
{
	(void)size, (void)unused;
	if (!strstr(info->dlpi_name, "libcpuslab"))
		return 0;
	library_start = info->dlpi_addr;
	for (int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_LOAD)
			library_end = library_start + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz;
	return 1;
}

static void *libc_dlsym(const char *name)
{
	static void *(*own)(void *, const char *);

	if (!own)
		own = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
	if (!own)
		own = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
	return own(RTLD_NEXT, name);
}

/* What it calls here may come back, for another name. */
static void *resolve(int index)
{
	static bool looked;

	if (!real[index])
		real[index] = libc_dlsym(names[index]);
	if (!looked) {
		looked = true;
		dl_iterate_phdr(find_library, NULL);
	}
	return real[index];
}

/* What such functions of others do. */
static void work(void)
{
	/* A child that was forked meanwhile would wait for ever. */
	for (int i = 0; i < 1000 && __atomic_exchange_n(&lock, 1, __ATOMIC_ACQUIRE); i++)
		;
	void *volatile object = malloc(78);
	free(object);
	object = calloc(3, 700);
	object = realloc(object, 9000);
	free(object);
	(void)libc_dlsym("there is no such function");
	__atomic_store_n(&lock, 0, __ATOMIC_RELEASE);
}

__attribute__((visibility("hidden"))) void *shim_enter(int index, uintptr_t caller)
{
	bool nested = inside;

	inside = true;
	resolve(index);
	if (caller - library_start < library_end - library_start)
		called[index] |= nested ? 3 : 1;
	if (!nested) {
		work();
		inside = false;
	}
	return real[index];
}

__attribute__((destructor)) static void write_log(void)
{
	const char *path = getenv("SHIM_LOG");
	int file = path ? open(path, O_WRONLY | O_CREAT | O_APPEND, 0600) : -1;

	inside = true;
	for (int i = 0; file >= 0 && i < NAMES; i++)
		if (called[i])
			dprintf(file, "%s%s\n", names[i], called[i] & 2 ? "!" : "");
}

/*
 * rdi to r9 and xmm0 to xmm7 have arguments, rax the number of the latter that a variadic function is given.
 * On the stack: a name's number, and above it the return address.
 */
__asm__(".text\n"
	"shim_common:\n"
	"pushq %rbp\n"
	"movq %rsp, %rbp\n"
	"pushq %rax\n"
	"pushq %rdi\n"
	"pushq %rsi\n"
	"pushq %rdx\n"
	"pushq %rcx\n"
	"pushq %r8\n"
	"pushq %r9\n"
	"pushq %r10\n"
	"subq $136, %rsp\n"
	"movups %xmm0, (%rsp)\n"
	"movups %xmm1, 16(%rsp)\n"
	"movups %xmm2, 32(%rsp)\n"
	"movups %xmm3, 48(%rsp)\n"
	"movups %xmm4, 64(%rsp)\n"
	"movups %xmm5, 80(%rsp)\n"
	"movups %xmm6, 96(%rsp)\n"
	"movups %xmm7, 112(%rsp)\n"
	"movq 8(%rbp), %rdi\n"
	"movq 16(%rbp), %rsi\n"
	"call shim_enter\n"
	"movq %rax, %r11\n"
	"movups (%rsp), %xmm0\n"
	"movups 16(%rsp), %xmm1\n"
	"movups 32(%rsp), %xmm2\n"
	"movups 48(%rsp), %xmm3\n"
	"movups 64(%rsp), %xmm4\n"
	"movups 80(%rsp), %xmm5\n"
	"movups 96(%rsp), %xmm6\n"
	"movups 112(%rsp), %xmm7\n"
	"addq $136, %rsp\n"
	"popq %r10\n"
	"popq %r9\n"
	"popq %r8\n"
	"popq %rcx\n"
	"popq %rdx\n"
	"popq %rsi\n"
	"popq %rdi\n"
	"popq %rax\n"
	"popq %rbp\n"
	"leaq 8(%rsp), %rsp\n"
	"jmp *%r11\n"
	".set number, 0\n");
#define NAME(name)                                                                                           \
	__asm__(".globl " #name "\n"                                                                         \
		".type " #name ", @function\n" #name ":\n"                                                   \
		"pushq $number\n"                                                                            \
		"jmp shim_common\n"                                                                          \
		".set number, number + 1\n");
#include "names.h"
