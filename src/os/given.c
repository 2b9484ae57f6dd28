/* SPDX-License-Identifier: MIT */
/* What the kernel gave the process at its start: the environment and the auxiliary vector. */
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "os/os.h"

/*
 * Where the kernel put argc, the arguments and the environment, in glibc.
 *
 * glibc's dynamic linker defines it, and __rseq_size and __rseq_offset.  Programs are linked to that only as
 * needed, and a weak reference is no need: most linkers leave the weak names to the start of the program, but
 * mold, and any linker with -z nodynamic-undefined-weak, makes them null for good.  So this reference is a
 * strong one.
 */
#ifdef __GLIBC__
extern void *__libc_stack_end;
#define FIRST_STACK __libc_stack_end
#else
#define FIRST_STACK NULL
#endif

/*
 * The environment as the kernel laid it out, behind argc and the arguments, and before the auxiliary vector.
 * NULL where libc does not say where: a static glibc notes another place, at which there is no such count.
 */
static char **first_environment(void)
{
	const intptr_t *count = FIRST_STACK;
	char **arguments = count ? (char **)(count + 1) : NULL;

	if (!count || *count < 1 || *count > INT32_MAX || arguments[*count])
		return NULL;
	for (intptr_t i = 0; i < *count; i++)
		if (!arguments[i])
			return NULL;
	return arguments + *count + 1;
}

static unsigned long auxiliary_by_libc(unsigned long type)
{
	int saved = errno;
	unsigned long value = getauxval(type);

	errno = saved;
	return value;
}

/*
 * libc's function can be replaced by one that allocates, while the library starts.  So it is asked only where
 * the vector is not found: in static programs, which have no other than libc's.
 */
__attribute__((weak)) unsigned long os_auxiliary(unsigned long type)
{
	char **entry = first_environment();

	if (!entry)
		return auxiliary_by_libc(type);
	while (*entry)
		entry++;
	for (const unsigned long *pair = (const unsigned long *)(entry + 1); pair[0] != AT_NULL; pair += 2)
		if (pair[0] == type)
			return pair[1];
	return 0;
}

/* Volatile, since a compiler may evaluate a constructor at compile time and emit its result: clang does. */
static volatile bool constructed;

__attribute__((constructor)) static void note_constructed(void)
{
	constructed = true;
}

bool os_libc_is_whole(void)
{
	/* With a dynamic linker libc has been initialised from the beginning. */
	return constructed || os_auxiliary(AT_BASE);
}

/*
 * glibc sets `environ` when it initialises, which is after the program's own pre-initialisers and after the
 * constructors of libraries that do not depend on it; these may allocate.
 */
const char *os_environment(const char *name)
{
	size_t length = strlen(name);
	char **entry = environ ? environ : first_environment();

	if (os_auxiliary(AT_SECURE) || !entry)
		return NULL;
	for (; *entry; entry++)
		if (strncmp(*entry, name, length) == 0 && (*entry)[length] == '=')
			return *entry + length + 1;
	return NULL;
}
