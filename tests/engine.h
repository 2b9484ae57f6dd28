/* SPDX-License-Identifier: MIT */
/* engine: tests of object caches run on each engine, which their first argument names. */
#ifndef CPUSLAB_TESTS_ENGINE_H
#define CPUSLAB_TESTS_ENGINE_H

#include "check.h"

#include <cpuslab/cache.h>

static enum cpuslab_engine engine;

static inline void engine_choose(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "magazine";

	engine = strcmp(name, "linked") == 0 ? CPUSLAB_ENGINE_LINKED : CPUSLAB_ENGINE_MAGAZINE;
	CHECK(engine == CPUSLAB_ENGINE_LINKED || strcmp(name, "magazine") == 0, "no engine '%s'", name);
}

#endif
