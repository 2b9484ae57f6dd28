/* SPDX-License-Identifier: MIT */
/*
 * deepbind: a plugin has the process's malloc, whatever flags it is opened with.
 *
 * RTLD_DEEPBIND has a plugin's names looked up in itself and in what it was linked to, libc included, before
 * the process.  Its malloc and free would be libc's: what it then frees for the program, or the program for
 * it, ends the process, as in each PHP that has extensions.  So the flag is dropped, unless an option keeps
 * it.
 *
 * Part of the shared library alone.  Who has the archive or the object file may be linked statically, where
 * libc's dlopen has the same name in the same file.
 */
#include <dlfcn.h>

#include "malloc/malloc.h"
#include "malloc/process.h"
#include "options/options.h"

#ifdef RTLD_DEEPBIND

typedef void *opener(const char *file, int mode);

/* The function below.  What its public name leads to may be libc's. */
extern opener own_dlopen __attribute__((alias("dlopen"), visibility("hidden"), nothrow));

/*
 * libc's dlopen; NULL: there is none.  Mostly libc comes behind this library.  Where a plugin or another
 * library has brought this one in, it may come before it.
 */
static opener *find_opener(void)
{
	static opener *found;
	opener *next = __atomic_load_n(&found, __ATOMIC_RELAXED);

	if (next)
		return next;
	next = (opener *)dlsym(RTLD_NEXT, "dlopen");
	if (!next)
		next = (opener *)dlsym(RTLD_DEFAULT, "dlopen");
	if (next == own_dlopen)
		return NULL;
	__atomic_store_n(&found, next, __ATOMIC_RELAXED);
	return next;
}

/*
 * What it ends with must be a jump, for which the build asks: by the address that it returns to, libc knows
 * who calls, and where that one's plugins lie (RUNPATH).
 */
EXPORT void *dlopen(const char *file, int mode)
{
	opener *next = find_opener();

	if (!next)
		return NULL;
	process_enter(); /* which reads the options */
	if (!options.deepbind)
		mode &= ~RTLD_DEEPBIND;
	return next(file, mode);
}

#endif
