/* SPDX-License-Identifier: MIT */
/*
 * startup_order: the allocator works whenever it is called: before any constructor (and free(NULL) may be the
 * first call of all), from constructors of each priority, from exit handlers, and from the last destructor.
 */
#include "check.h"
#include "libraries/early_user.h"

extern __typeof__(early_user_use) early_user_use __attribute__((weak));
extern __typeof__(early_user_calls) early_user_calls __attribute__((weak));

enum { STAGES = 7 };

static void *kept[STAGES];
static unsigned stages;

/* What the first call of all found in the environment, which libc itself may not have set up by then. */
static void check_options(char **environment)
{
	const char *wanted = "";

	if (!check_cpuslab())
		return;
	for (; *environment; environment++)
		if (strncmp(*environment, "CPUSLAB_OPTIONS=", 16) == 0)
			wanted = *environment + 16;
	enum cpuslab_vcpu_mode mode = cpuslab_vcpu_mode();
	if (strcmp(wanted, "vcpu:slot") == 0)
		CHECK(mode == CPUSLAB_VCPU_THREAD_SLOT, "%s, and the mode is %s", wanted, check_mode());
	if (strcmp(wanted, "vcpu:cpu_id") == 0)
		CHECK(mode != CPUSLAB_VCPU_MM_CID, "%s, and the mode is %s", wanted, check_mode());
}

/* Each stage verifies and frees what the one before it left. */
static void stage(void)
{
	if (stages > 0) {
		CHECK_STAMP(kept[stages - 1], 5000, stages - 1);
		kept[stages - 1] = realloc(kept[stages - 1], 500000);
		CHECK(kept[stages - 1]);
		CHECK_STAMP(kept[stages - 1], 5000, stages - 1);
		free(kept[stages - 1]);
	}
	kept[stages] = malloc(5000);
	CHECK(kept[stages]);
	check_stamp(kept[stages], 5000, stages);
	for (size_t size = 1; size < 3000000; size += size / 2 + 1) {
		void *object = size % 2 ? calloc(1, size) : aligned_alloc(64, size);
		CHECK(object, "%zu bytes in stage %u", size, stages);
		memset(object, 0x77, size);
		free(object);
	}
	stages++;
}

/* The program's own pre-initialisers run before the constructors of every library. */
static void before_everything(int argc, char **argv, char **environment)
{
	(void)argc, (void)argv;
	free(NULL);
	free(NULL);
	stage();
	check_options(environment);
}

__attribute__((section(".preinit_array"), used)) static void (*preinit)(int, char **,
									char **) = before_everything;

__attribute__((constructor(101))) static void early_constructor(void)
{
	stage();
}

__attribute__((constructor)) static void constructor(void)
{
	stage();
}

static void at_exit(void)
{
	stage();
}

__attribute__((destructor)) static void destructor(void)
{
	stage();
}

__attribute__((destructor(101))) static void late_destructor(void)
{
	stage();
	CHECK(stages == STAGES, "%u stages ran", stages);
	CHECK_STAMP(kept[STAGES - 1], 5000, STAGES - 1);
	free(kept[STAGES - 1]);
	static const char text[] = "every stage\n";
	CHECK(write(STDOUT_FILENO, text, sizeof text - 1) > 0);
}

int main(void)
{
	CHECK(stages == 3, "%u stages before main", stages);
	CHECK(atexit(at_exit) == 0);
	stage();
	if (early_user_use) {
		CHECK(early_user_calls() == 2);
		early_user_use();
		CHECK(early_user_calls() == 3);
	}
	return 0;
}
