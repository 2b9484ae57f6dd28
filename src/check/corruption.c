/* SPDX-License-Identifier: MIT */
#include "check/corruption.h"

#include <stdio.h>
#include <stdlib.h>

#include "os/os.h"

_Noreturn void corruption_abort(const char *cache, const void *pointer, const char *what)
{
	char line[256];
	int length = snprintf(line, sizeof line, "cpuslab: %s: %p: %s (pid %d)\n", cache ? cache : "no cache",
			      pointer, what, (int)os_process_id());

	if (length > 0)
		os_write_error(line, (size_t)length < sizeof line ? (size_t)length : sizeof line - 1);
	abort();
}
