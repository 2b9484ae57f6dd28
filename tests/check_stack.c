/* SPDX-License-Identifier: MIT */
/*
 * The unwinder sees what libc's backtrace() sees, wherever it is called from: through functions without frame
 * pointers, callbacks of libc, a signal handler on an alternate stack, and the start of a thread; the store
 * has one number for each stack; and a wild stack pointer does no harm.
 *
 *   check_stack full   in a small heap without metadata; started by check_stack itself
 */
#include "check.h"

#include <execinfo.h>

#include "arch/registers.h"
#include "check/stack.h"
#include "check/symbol.h"
#include "process/process.h"
#include "page/page.h"

static unsigned compared;

/* Both are called from this function, so that all frames but its own must agree. */
static __attribute__((noinline)) void compare(void)
{
	void *libc[STACK_FRAMES + 8];
	int libc_count = backtrace(libc, STACK_FRAMES + 8);
	unsigned count;
	const uintptr_t *frame = stack_frames(stack_capture(), &count);
	unsigned own = 0;

	CHECK(frame && count > 1);
	/* Frames of the library itself, linked into this program, come first. */
	while (own < count && frame[own] != (uintptr_t)libc[1])
		own++;
	CHECK(own < count, "the caller of this function is not there");
	for (unsigned i = own; i < count && i - own + 1 < (unsigned)libc_count; i++)
		CHECK(frame[i] == (uintptr_t)libc[i - own + 1], "frame %u: %#lx, not %p", i, frame[i],
		      libc[i - own + 1]);
	CHECK(count == STACK_FRAMES || count - own + 1 >= (unsigned)libc_count - 1, "%u of %d frames", count,
	      libc_count);
	compared++;
}

static __attribute__((noinline)) int deep(int depth)
{
	char local[64];

	memset(local, depth, sizeof local);
	if (depth)
		return deep(depth - 1) + local[depth];
	compare();
	return local[0];
}

static int compare_two(const void *a, const void *b)
{
	compare();
	return *(const char *)a - *(const char *)b;
}

static void on_signal(int number)
{
	(void)number;
	compare();
}

static void *in_thread(void *unused)
{
	deep(2);
	return unused;
}

static __attribute__((noinline)) uint32_t here(void)
{
	uint32_t number = stack_capture();

	__asm__ volatile("" ::: "memory");
	return number;
}

static void test_store(void)
{
	uint32_t number[3];

	/* Volatile, so that the compiler keeps a single call. */
	for (volatile int i = 0; i < 3; i++)
		number[i] = here();
	CHECK(number[0] && number[0] == number[1] && number[1] == number[2]);
	CHECK(here() != number[0], "another line is another stack");
}

/* A stack for which no memory was available is not mistaken for a stored one, however often that happens. */
static __attribute__((noinline)) void fill_store(int depth)
{
	enum { TIMES = STACK_STORE_BYTES / (STACK_FRAMES * sizeof(uintptr_t)) + 1 };
	char local[64];

	memset(local, depth, sizeof local);
	if (depth) {
		fill_store(depth - 1);
		__asm__ volatile("" : : "m"(local) : "memory");
		return;
	}
	char *last = NULL, *next;
	while ((next = metadata_alloc(METADATA_REUSED_MOST)))
		last = next;
	while (metadata_alloc(METADATA_UNIT))
		;
	for (volatile unsigned i = 0; i < TIMES; i++)
		if (stack_capture())
			CHECK(false, "kept without memory");
	metadata_free(last, METADATA_REUSED_MOST);
	CHECK(stack_capture(), "not kept though there is memory again");
}

static void test_symbol(void)
{
	struct symbol symbol;

	symbol_find((uintptr_t)&qsort, &symbol);
	CHECK(symbol.function && strcmp(symbol.function, "qsort") == 0 && symbol.function_offset == 0);
	CHECK(symbol.module && strncmp(symbol.module, "libc.so", 7) == 0);
	symbol_find((uintptr_t)&symbol, &symbol);
	CHECK(!symbol.module && !symbol.function);
}

int main(int argc, char **argv)
{
	static char signal_stack[64 << 10];
	stack_t alternative = {.ss_sp = signal_stack, .ss_size = sizeof signal_stack};
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
	char letters[] = "zyx";
	pthread_t thread;
	struct module module;

	check_watchdog(60);
	process_enter();
	if (!ARCH_HAS_FRAME_TABLES || !symbol_module((uintptr_t)&main, &module))
		check_skip("there is no unwinder here");
	(void)argv;
	if (argc > 1) {
		fill_store(STACK_FRAMES);
		return 0;
	}
	compare();
	deep(3);
	deep(40);
	qsort(letters, 3, 1, compare_two);
	CHECK(sigaltstack(&alternative, NULL) == 0 && sigaction(SIGUSR1, &action, NULL) == 0);
	raise(SIGUSR1);
	CHECK(pthread_create(&thread, NULL, in_thread, NULL) == 0 && pthread_join(thread, NULL) == 0);
	CHECK(compared >= 6);
	test_store();
	test_symbol();
	check_again("reserve:8M", "full");
	return 0;
}
