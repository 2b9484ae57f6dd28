/* SPDX-License-Identifier: MIT */
#include "commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool readable_in(const char *directory, char path[static PATH_MAX])
{
	/* Only a development install has the bare name; the soname is always there. */
	static const char *const names[] = {"libcpuslab.so", "libcpuslab.so.0"};
	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char candidate[PATH_MAX];
		if (snprintf(candidate, sizeof(candidate), "%s/%s", directory, names[i]) <
			    (int)sizeof(candidate) &&
		    access(candidate, R_OK) == 0 && realpath(candidate, path))
			return true;
	}
	return false;
}

bool library_find(char path[static PATH_MAX])
{
	char self[PATH_MAX], directory[PATH_MAX + sizeof("/../lib")];
	ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (length > 0) {
		self[length] = '\0';
		*strrchr(self, '/') = '\0';
		if (readable_in(self, path))
			return true;
		snprintf(directory, sizeof(directory), "%s/../lib", self);
		if (readable_in(directory, path))
			return true;
	}
	return readable_in(CPUSLAB_LIBDIR, path);
}

bool library_preload(const char *path)
{
	if (path[strcspn(path, " :")] != '\0') {
		fprintf(stderr,
			"cpuslab: cannot preload '%s': the dynamic linker splits paths at spaces and "
			"colons\n",
			path);
		return false;
	}
	const char *present = getenv("LD_PRELOAD");
	char *joined;
	if (!present || !*present)
		return setenv("LD_PRELOAD", path, 1) == 0;
	if (asprintf(&joined, "%s:%s", path, present) < 0)
		return false;
	bool done = setenv("LD_PRELOAD", joined, 1) == 0;
	free(joined);
	return done;
}
