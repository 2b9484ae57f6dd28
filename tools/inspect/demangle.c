/* SPDX-License-Identifier: MIT */
#include "inspect/demangle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef CPUSLAB_HAS_DEMANGLER
#include <demangle.h>

static char *demangled(const char *name)
{
	return cplus_demangle(name, DMGL_AUTO | DMGL_PARAMS | DMGL_ANSI);
}

const char *demangle_lacks(void)
{
	return NULL;
}
#else
static char *demangled(const char *name)
{
	(void)name;
	return NULL;
}

const char *demangle_lacks(void)
{
	return "libiberty, so that names stay mangled";
}
#endif

char *demangle(const char *name)
{
	char *text = strncmp(name, "_Z", 2) == 0 || strncmp(name, "_R", 2) == 0 ? demangled(name) : NULL;

	if (!text)
		text = strdup(name);
	if (!text) {
		perror("cpuslab");
		exit(1);
	}
	return text;
}
