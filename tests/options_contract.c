/* SPDX-License-Identifier: MIT */
/*
 * options_contract: the promises of the malloc family (malloc_contract) hold under every option.  The options
 * are those of the table that the parser reads, so a new one takes part unless it says nothing of its kind
 * here.
 *
 *   options_contract each   each option with a usual value, a short form of the contract
 *   options_contract all    each option with all values below, in each vCPU mode, the whole contract
 */
#include "check.h"

#include <libgen.h>
#include <limits.h>

/* Values for each kind of option, the most usual one first. */
static const char *const FLAG[] = {"true", "false"};
static const char *const COUNT[] = {"100", "0", "1", "4294967295"};
static const char *const BYTES[] = {"512K", "0", "1", "1G", "17179869183G"};
static const char *const MILLISECONDS[] = {"0", "1", "1000", "4000000000"};
static const char *const LIMIT[] = {"64G", "0", "memory.high", "memory.max"};
static const char *const SIGNAL[] = {"12", "0", "64"};
static const char *const VCPU_MODE[] = {"slot", "cpu_id", "mm_cid", "auto"};
static const char *const HUGE_PAGES[] = {"always", "never", "auto"};
/* A heap that the contract's work fits into. */
static const char *const reserve[] = {"0", "1G", "4096G", "17179869183G"};

static const struct option {
	const char *name;
	const char *const *values;
	size_t count;
} table[] = {
#define OPTION(name, kind, initial, text) {#name, kind, sizeof kind / sizeof *kind},
#include "options/options.def"
#undef OPTION
};

static struct option usual_or_own(const struct option *option)
{
	if (strcmp(option->name, "reserve") == 0)
		return (struct option){option->name, reserve, sizeof reserve / sizeof *reserve};
	return *option;
}

static void run_contract(void *options)
{
	char program[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);

	CHECK(length > 0);
	program[length] = 0;
	char *folder = dirname(program);

	CHECK(strlen(folder) + sizeof "/malloc_contract" < sizeof program);
	strcpy(folder + strlen(folder), "/malloc_contract");
	setenv("CPUSLAB_OPTIONS", options, 1);
	CHECK(freopen("/dev/null", "w", stdout));
	execl(program, "malloc_contract", NULL);
	_exit(99);
}

static void hold_under(const char *mode, const char *name, const char *value)
{
	static char said[1 << 16];
	char options[200];

	check_watchdog(300); /* anew: this process does nothing but wait */
	snprintf(options, sizeof options, "%s%s%s:%s", mode, *mode ? "," : "", name, value);
	int status = check_child(run_contract, options, said, sizeof said);

	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s: wait status %#x, said: %s", options,
	      (unsigned)status, said);
	CHECK(!strstr(said, "CPUSLAB_OPTIONS"), "%s: %s", options, said);
}

static void hold_under_each(void)
{
	/* Shorter; see check_valgrind in malloc_contract. */
	setenv("CPUSLAB_VALGRIND", "1", 1);
	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		hold_under("", table[i].name, usual_or_own(&table[i]).values[0]);
}

static void hold_under_all(void)
{
	static const char *const modes[] = {"vcpu:auto", "vcpu:cpu_id", "vcpu:slot", "hardened:1"};

	for (size_t mode = 0; mode < sizeof modes / sizeof *modes; mode++)
		for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
			struct option option = usual_or_own(&table[i]);

			for (size_t value = 0; value < option.count; value++)
				hold_under(modes[mode], option.name, option.values[value]);
		}
}

int main(int count, char **arguments)
{
	if (count > 1 && strcmp(arguments[1], "all") == 0)
		hold_under_all();
	else
		hold_under_each();
	return 0;
}
