/* SPDX-License-Identifier: MIT */
/*
 * start_main: tells the background thread's room when `main` begins.
 *
 * A program's constructors may do what only a process with one thread can, or fork, so the thread is not made
 * before all of them have run.  Nothing tells a library when that is but the function of libc's that calls
 * them and then main.  It is libc's own in all that it does; only where the option is set does main begin
 * with a note.
 *
 * Part of the shared library alone, like deepbind.c: a static program has libc's in the same file.  There,
 * and in a process that opens the library later, the thread is made when it is needed (needs_thread,
 * magazine/reclaim.c).
 */
#include <dlfcn.h>

#include "background/background.h"
#include "malloc/malloc.h"
#include "options/options.h"

typedef int main_function(int count, char **arguments, char **environment);
typedef int start_function(main_function *start, int count, char **arguments, main_function *init,
			   void (*fini)(void), void (*fini_of_linker)(void), void *stack_end);

extern CPUSLAB_API start_function __libc_start_main;

static main_function *program_main ARCH_SPARSE;

static int begin_main(int count, char **arguments, char **environment)
{
	background_release();
	return program_main(count, arguments, environment);
}

int __libc_start_main(main_function *start, int count, char **arguments, main_function *init,
		      void (*fini)(void), void (*fini_of_linker)(void), void *stack_end)
{
	start_function *next = (start_function *)dlsym(RTLD_NEXT, "__libc_start_main");

	if (options.background) {
		background_hold();
		program_main = start;
		start = begin_main;
	}
	return next(start, count, arguments, init, fini, fini_of_linker, stack_end);
}
