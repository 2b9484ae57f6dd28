/* SPDX-License-Identifier: MIT */
/* cpuslab version: the command's version, and what the library reports about itself and this machine. */
#include "commands.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int command_version(int argc, char **argv)
{
	char path[PATH_MAX];
	(void)argc;
	(void)argv;
	printf("cpuslab %s\n", CPUSLAB_VERSION);
	if (!library_find(path)) {
		puts("library: not found");
		return 1;
	}
	/* Loaded beside the system's malloc, not preloaded: this process keeps that malloc, and only asks. */
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		printf("library: %s\n", dlerror());
		return 1;
	}
	const char *(*version)(void) = (const char *(*)(void))dlsym(library, "cpuslab_version");
	const char *(*mode)(void) = (const char *(*)(void))dlsym(library, "cpuslab_vcpu_mode_name");
	void *(*allocate)(size_t) = (void *(*)(size_t))dlsym(library, "malloc");
	void (*release)(void *) = (void (*)(void *))dlsym(library, "free");
	if (!version || !mode || !allocate || !release) {
		printf("library: %s is not cpuslab\n", path);
		return 1;
	}
	release(allocate(1)); /* the mode is chosen at the first allocation */
	printf("library: %s (%s)\n", path, version());
	printf("vcpu:    %s\n", mode());
	return 0;
}
