/* SPDX-License-Identifier: MIT */
/*
 * environment: what the fuzzed library gets instead of some of libc's functions, and what tells the
 * harness.
 */
#ifndef CPUSLAB_TESTS_FUZZ_ENVIRONMENT_H
#define CPUSLAB_TESTS_FUZZ_ENVIRONMENT_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What libFuzzer, or replay.c, calls. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Milliseconds that the library's clock shows; it stands still but for this. */
extern uint64_t environment_time;
/* Calls for memory that succeed before so many fail. */
extern unsigned environment_succeeding, environment_failing;
/* Calls that have failed so far. */
extern unsigned environment_failed;
/* What is written is counted in lines, and not shown. */
extern bool environment_quiet;
extern unsigned environment_lines;
/* Where abort() goes; NULL: it aborts. */
extern jmp_buf *environment_abort;

#endif
