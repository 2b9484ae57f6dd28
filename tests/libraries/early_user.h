/* SPDX-License-Identifier: MIT */
#ifndef CPUSLAB_TESTS_EARLY_USER_H
#define CPUSLAB_TESTS_EARLY_USER_H

/* Frees what the last use left, verifying it, and allocates anew. */
void early_user_use(void);

/* How many uses there were. */
unsigned early_user_calls(void);

#endif
