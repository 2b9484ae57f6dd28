/* SPDX-License-Identifier: MIT */
/*
 * startup_deepbind: a plugin opened with RTLD_DEEPBIND uses the process's malloc, from its constructor on, so
 * that plugin and program can free each other's objects; with deepbind:true it gets libc's, as it requested.
 * And each caller of dlopen finds its own plugins: libc searches according to its return address.
 */
#include "check.h"
#include "libraries/deepbound.h"

#include <dlfcn.h>

static struct deepbound *open_deepbound(void)
{
	CHECK(!dlopen("libdeepbound.so", RTLD_NOW), "the program has no path to it");

	void *plugin = deepbound_open(RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);

	CHECK(plugin, "%s", dlerror());

	struct deepbound *found = (struct deepbound *)dlsym(plugin, "deepbound");

	CHECK(found && found->early);
	return found;
}

static void dropped(void)
{
	struct deepbound *plugin = open_deepbound();

	CHECK(plugin->allocate == malloc && plugin->release == free);
	free(plugin->early);
	plugin->release(strdup("of the program"));
	free(plugin->allocate(1 << 20));
	plugin->release(malloc(1 << 20));
}

static void kept(char *const *arguments)
{
	if (!getenv("CPUSLAB_OPTIONS")) {
		CHECK(setenv("CPUSLAB_OPTIONS", "deepbind:true", 1) == 0);
		execv("/proc/self/exe", arguments);
		CHECK(false, "exec");
	}

	struct deepbound *plugin = open_deepbound();

	CHECK(plugin->allocate != malloc && plugin->release != free);
	plugin->release(plugin->early);
}

int main(int count, char **arguments)
{
	check_watchdog(60);
	CHECK(count == 2);
	if (strcmp(arguments[1], "kept") == 0)
		kept(arguments);
	else
		dropped();
	return 0;
}
