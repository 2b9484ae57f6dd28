/* SPDX-License-Identifier: MIT */
/* environment: replaces some of libc's functions for the fuzzed library, and informs the harness. */
#ifndef CPUSLAB_TESTS_FUZZ_ENVIRONMENT_H
#define CPUSLAB_TESTS_FUZZ_ENVIRONMENT_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Called by libFuzzer, or by replay.c. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The library's clock in milliseconds; nothing else advances it. */
extern uint64_t environment_time;
/* How many calls for memory succeed, and how many then fail. */
extern unsigned environment_succeeding, environment_failing;
/* Calls that have failed so far. */
extern unsigned environment_failed;
/* Output is counted in lines, and not shown. */
extern bool environment_quiet;
extern unsigned environment_lines;
/* Where abort() jumps to; NULL: it really aborts. */
extern jmp_buf *environment_abort;

#endif
