/* SPDX-License-Identifier: MIT */
/* no_residents: the files in /proc that say which pages are resident cannot be opened. */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

FILE *fopen(const char *path, const char *mode)
{
	FILE *(*next)(const char *, const char *) =
		(FILE * (*)(const char *, const char *)) dlsym(RTLD_NEXT, "fopen");
	const char *name = strrchr(path, '/');

	if (name && (strcmp(name, "/smaps") == 0 || strcmp(name, "/pagemap") == 0)) {
		errno = EACCES;
		return NULL;
	}
	return next(path, mode);
}
