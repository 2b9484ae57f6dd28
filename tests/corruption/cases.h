/* SPDX-License-Identifier: MIT */
/*
 * cases: programs that break their heap in the classic ways, one function each.
 *
 * Each case marks its faulty access or call with wrong_begins() and wrong_ends(), with nothing else in
 * between, so that a supervisor knows whether the process was stopped there, later, or not at all.
 */
#ifndef CPUSLAB_TESTS_CORRUPTION_CASES_H
#define CPUSLAB_TESTS_CORRUPTION_CASES_H

enum kind { DOUBLE_FREE, INVALID_FREE, OVERFLOW, UNDERFLOW, USE_AFTER_FREE, WRONG_SIZE, ZERO_SIZE };

struct corruption {
	const char *name;
	enum kind kind;
	void (*commit)(void);
};

extern const struct corruption corruptions[];
extern const unsigned corruption_count;

/* How a case ends that is not stopped: it read old content, or zeros; or it lacks a prerequisite. */
enum ending { ENDS_SILENTLY = 0, ENDS_CLEARED = 90, ENDS_ABSENT = 91 };

void wrong_begins(void);
void wrong_ends(void);
/* Ends the case as one of the above. */
_Noreturn void end_as(enum ending ending);

#endif
