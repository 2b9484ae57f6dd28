/* SPDX-License-Identifier: MIT */
/*
 * startup_plugin: a program without a C++ runtime opens a plugin that brings one, as python3 does.  The
 * plugin is the test cxx_operators, all of which holds there as well: bad_alloc, and the new-handler when
 * memory ends.
 */
#include "check.h"

#include <dlfcn.h>
#include <limits.h>

static void *open_plugin(void)
{
	char path[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);

	CHECK(length > 0);
	path[length] = '\0';

	char *name = strrchr(path, '/') + 1;

	CHECK(name + sizeof "libcxx_plugin.so" <= path + sizeof path);
	strcpy(name, "libcxx_plugin.so");
	return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

int main(void)
{
#ifdef TEST_SANITIZED
	if (dlsym(RTLD_DEFAULT, "__cxa_throw"))
		check_skip("the sanitizer's library brings a C++ runtime");
#endif
	CHECK(!dlsym(RTLD_DEFAULT, "__cxa_throw"), "this program has a C++ runtime");

	void *plugin = open_plugin();

	CHECK(plugin, "%s", dlerror());

	int (*start)(void) = (int (*)(void))dlsym(plugin, "main");

	CHECK(start && start != main);
	return start();
}
