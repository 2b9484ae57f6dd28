/* SPDX-License-Identifier: MIT */
/* Preloaded: a C library that has registered restartable sequences and does not say where. */
const unsigned int __rseq_size = 0;
