/* SPDX-License-Identifier: MIT */
/*
 * cases: programs that break their heap in the classic ways, one function each.
 *
 * Between wrong_begins() and wrong_ends() stands what is wrong and nothing else, so that whoever watches the
 * process knows whether it was stopped there, later, or not at all.
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

/* How a case ends that is not stopped: what it read was old content, or zero; what it needs is not there. */
enum ending { ENDS_SILENTLY = 0, ENDS_CLEARED = 90, ENDS_ABSENT = 91 };

void wrong_begins(void);
void wrong_ends(void);
/* Ends the case as one of the above. */
_Noreturn void end_as(enum ending ending);

#endif
