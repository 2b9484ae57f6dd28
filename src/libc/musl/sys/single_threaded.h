/* SPDX-License-Identifier: MIT */
/* For a C library that does not tell whether the process has threads: it may have (musl.c). */
extern char __libc_single_threaded __attribute__((visibility("hidden")));
