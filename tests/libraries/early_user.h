/* SPDX-License-Identifier: MIT */
#ifndef CPUSLAB_TESTS_EARLY_USER_H
#define CPUSLAB_TESTS_EARLY_USER_H

/* Verifies and frees what the last use left, and allocates anew. */
void early_user_use(void);

/* Number of uses so far. */
unsigned early_user_calls(void);

#endif
