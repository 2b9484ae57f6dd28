/* SPDX-License-Identifier: MIT */
/*
 * check_schedules: stops a validation of everything at each instruction, while another thread resizes an
 * object in place, or frees it and allocates one of another size.  The requested size and the zones that
 * follow from it must be read consistently: no validation may report anything.
 */
#include "schedules.h"

#ifdef __x86_64__

enum { SHORT = 100, LONG = 105 };
enum conflict { RESIZE, REPLACE, CONFLICTS };

static const char *const operations[] = {"validate"};
static char *volatile object;
static size_t bytes = SHORT;
static long damaged;

static void begin(void)
{
	object = malloc(bytes);
	CHECK(object);
}

static void operate(unsigned operation)
{
	(void)operation;
	TRACED_TRAP();
	damaged = cpuslab_validate(NULL);
	TRACED_TRAP();
}

static void conflict(unsigned kind)
{
	bytes = bytes == SHORT ? LONG : SHORT;
	if (kind == RESIZE) {
		CHECK(realloc(object, bytes) == object);
	} else {
		free(object);
		object = malloc(bytes);
		CHECK(object);
	}
	object[bytes - 1] = 1;
}

static void check(void)
{
	CHECK(damaged == 0, "%ld objects", damaged);
	CHECK(cpuslab_validate(NULL) == 0);
}

int main(int count, char **arguments)
{
	static const struct schedules validate = {
		.operations = operations,
		.conflicts = CONFLICTS,
		.begin = begin,
		.operate = operate,
		.conflict = conflict,
		.check = check,
	};

	(void)count;
	if (!getenv("CPUSLAB_DEBUG")) {
		setenv("CPUSLAB_DEBUG", "FZ,malloc-112", 1);
		execv("/proc/self/exe", arguments);
	}
	schedules_begin(&validate);
	struct schedules_count stops = schedules_run(0);
	CHECK(stops.stops >= 100 && stops.waits >= 10);
	schedules_end();
	return 0;
}

#endif
