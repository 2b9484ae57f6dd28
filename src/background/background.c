/* SPDX-License-Identifier: MIT */
#include "background/background.h"

#include <elf.h>
#include <link.h>
#include <sys/single_threaded.h>

#include "arch/valgrind.h"
#include "options/options.h"
#include "os/os.h"

enum {
	STACK_BYTES = 32 << 10, /* a step needs less than a third of it */
	POINTER_BYTES = 4096,   /* at and above the thread pointer: what libc's have, and more */
};

uint32_t background_word = BACKGROUND_NEVER;
static struct background_work work ARCH_SPARSE;
static uint32_t thread_id ARCH_SPARSE; /* 0 for none */
static uint32_t process ARCH_SPARSE;   /* that may make the thread */
static bool held ARCH_SPARSE;
static __thread bool is_background;

/* The thread's memory, kept for the next one, in a forked child. */
static struct {
	char *memory;
	size_t bytes;
	void *stack, *pointer;
} own ARCH_SPARSE;

/* ---- the thread's memory ------------------------------------------------------------------------------- */

/* This file's ELF header, in the program or the shared library. */
extern const ElfW(Ehdr) __ehdr_start __attribute__((weak, visibility("hidden")));

/* The bytes of all thread-local variables of the program or shared library that this code is part of. */
static size_t variables_bytes(void)
{
	const char *start = (const char *)&__ehdr_start;

	/* Compilers take the header's size for that of all that follows it. */
	ARCH_HIDE(start);
	const ElfW(Phdr) *header = (const void *)(start + __ehdr_start.e_phoff);

	for (unsigned i = 0; i < __ehdr_start.e_phnum; i++)
		if (header[i].p_type == PT_TLS)
			return header[i].p_memsz + header[i].p_align;
	return 0;
}

static size_t round_up(intptr_t bytes)
{
	return (size_t)(bytes + OS_PAGE_BYTES - 1) & -(size_t)OS_PAGE_BYTES;
}

/*
 * Maps a page without access, the stack, and the thread-local variables around the thread pointer, where one
 * variable tells about where the others lie.
 */
static bool map_memory(void)
{
	if (!&__ehdr_start)
		return false;
	intptr_t bytes = (intptr_t)variables_bytes();
	intptr_t known = (const char *)&is_background - (const char *)__builtin_thread_pointer();
	intptr_t lowest = known - bytes < work.reach ? known - bytes : work.reach;
	intptr_t highest = known + bytes > work.reach ? known + bytes : work.reach;
	size_t below = round_up(lowest < 0 ? -lowest : 0);
	size_t above = round_up(POINTER_BYTES + (highest > 0 ? highest : 0));

	own.bytes = OS_PAGE_BYTES + STACK_BYTES + below + above;
	own.memory = os_map(NULL, own.bytes);
	if (!own.memory)
		return false;
	(void)os_forbid(own.memory, OS_PAGE_BYTES);
	own.stack = own.memory + OS_PAGE_BYTES + STACK_BYTES;
	own.pointer = (char *)own.stack + below;
	return true;
}

/* Returns whether there is memory that reads as zero. */
static bool has_memory(void)
{
	return own.memory ? os_purge(own.memory, own.bytes) == 0 : map_memory();
}

/* ---- the thread ---------------------------------------------------------------------------------------- */

static void sleep_at(uint32_t value, unsigned milliseconds)
{
	struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000l};

	(void)os_futex_wait(&background_word, value, milliseconds == BACKGROUND_NO_TIMER ? NULL : &time);
}

static void run(void)
{
	is_background = true;
	work.enter();
	os_name_thread("cpuslab");
	if (os_confine_thread() != 0) {
		__atomic_store_n(&background_word, BACKGROUND_NEVER, __ATOMIC_RELEASE);
		return;
	}
	for (;;) {
		uint32_t before = __atomic_exchange_n(&background_word, BACKGROUND_QUIET, __ATOMIC_SEQ_CST);
		unsigned wait = work.step(before >= BACKGROUND_SEEN);
		uint32_t word = BACKGROUND_QUIET;

		if (__atomic_compare_exchange_n(&background_word, &word, BACKGROUND_ASLEEP, false,
						__ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
			sleep_at(BACKGROUND_ASLEEP, wait);
		else
			sleep_at(BACKGROUND_SEEN, BACKGROUND_TICK);
	}
}

/*
 * A task that only shares the process's memory, as a child of vfork, would make a thread of its own process,
 * which ended with it: so the process's id is compared.
 */
static void begin_thread(void)
{
	uint32_t absent = BACKGROUND_ABSENT;
	char single = __libc_single_threaded;

	if (__atomic_load_n(&held, __ATOMIC_RELAXED) || os_process_id() != process ||
	    !__atomic_compare_exchange_n(&background_word, &absent, BACKGROUND_SEEN, false, __ATOMIC_SEQ_CST,
					 __ATOMIC_RELAXED))
		return;
	/* From now on there are two threads, whatever libc knows. */
	__libc_single_threaded = 0;
	if (has_memory()) {
		arch_init_thread_pointer(own.pointer);
		if (os_begin_thread(run, own.stack, own.pointer, &thread_id) == 0)
			return;
	}
	__libc_single_threaded = single;
	__atomic_store_n(&background_word, BACKGROUND_NEVER, __ATOMIC_RELEASE);
}

/* Raises the word; the thread sleeps, if it does, at the value that was there. */
__attribute__((noinline)) void background_rouse(uint32_t wanted)
{
	uint32_t word = __atomic_load_n(&background_word, __ATOMIC_RELAXED);

	if (is_background)
		return;
	if (word == BACKGROUND_ABSENT) {
		begin_thread();
		return;
	}
	while (word < wanted)
		if (__atomic_compare_exchange_n(&background_word, &word, wanted, false, __ATOMIC_SEQ_CST,
						__ATOMIC_RELAXED)) {
			if (word != BACKGROUND_QUIET)
				(void)os_futex_wake(&background_word, 1);
			return;
		}
}

/* ---- the process --------------------------------------------------------------------------------------- */

void background_begin(const struct background_work *wanted)
{
	/* Valgrind makes system calls of its own on each thread. */
	if (!ARCH_HAS_THREAD || arch_valgrind(ARCH_VALGRIND_RUNNING, 0, 0, 0, 0))
		return;
	if (wanted != &work)
		work = *wanted;
	process = os_process_id();
	__atomic_store_n(&background_word, BACKGROUND_ABSENT, __ATOMIC_RELEASE);
}

void background_begin_child(void)
{
	thread_id = 0;
	background_begin(&work);
}

void background_hold(void)
{
	__atomic_store_n(&held, true, __ATOMIC_RELAXED);
}

void background_release(void)
{
	__atomic_store_n(&held, false, __ATOMIC_RELAXED);
}

void background_show(void (*show)(const char *name, uintptr_t value, size_t size))
{
	show("background.thread", (uintptr_t)&thread_id, sizeof thread_id);
}
