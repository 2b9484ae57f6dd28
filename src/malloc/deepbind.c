/* SPDX-License-Identifier: MIT */
/*
 * deepbind: a plugin uses the process's malloc, whatever flags it is opened with.
 *
 * RTLD_DEEPBIND makes a plugin's names resolve in itself and in the libraries it was linked to, libc
 * included, before the process.  Its malloc and free would be libc's: whatever it then frees for the
 * program, or the program for it, kills the process, as in every PHP with extensions.  So the flag is
 * dropped, unless an option keeps it.
 *
 * Part of the shared library alone.  A program that uses the archive or the object file may be static, and
 * libc's dlopen then has the same name in the same file.
 */
#include <dlfcn.h>

#include "malloc/malloc.h"
#include "process/process.h"
#include "options/options.h"

#ifdef RTLD_DEEPBIND

typedef void *opener(const char *file, int mode);

/* The function below; its public name may lead to libc's. */
extern opener own_dlopen __attribute__((alias("dlopen"), visibility("hidden"), nothrow));

/*
 * Returns libc's dlopen, or NULL if there is none.  libc mostly comes behind this library; it may come
 * before it where a plugin or another library has pulled this one in.
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
 * Must end in a jump, which the build asks for: libc identifies the caller, and where its plugins lie
 * (RUNPATH), by the return address.
 */
EXPORT void *dlopen(const char *file, int mode)
{
	opener *next = find_opener();

	if (!next)
		return NULL;
	process_enter(); /* reads the options */
	if (!options.deepbind)
		mode &= ~RTLD_DEEPBIND;
	return next(file, mode);
}

#endif
