/* SPDX-License-Identifier: MIT */
/* For a C library that registers no restartable sequences: the library registers its threads itself. */
extern const unsigned __rseq_size __attribute__((weak));
