/* SPDX-License-Identifier: MIT */
/* file_shrinks: truncates the file SHRINKS when libdw has mapped it, before any of it is read. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int dwfl_report_end(void *session, void *removed, void *argument);

int dwfl_report_end(void *session, void *removed, void *argument)
{
	int (*next)(void *, void *, void *) =
		(int (*)(void *, void *, void *))dlsym(RTLD_NEXT, "dwfl_report_end");
	const char *file = getenv("SHRINKS");
	int status = next(session, removed, argument);

	if (file && truncate(file, 0) == 0)
		fprintf(stderr, "%s shrinks\n", file);
	return status;
}
