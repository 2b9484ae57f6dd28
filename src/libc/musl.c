/* SPDX-License-Identifier: MIT */
/* What glibc has and musl lacks; the headers are in musl/. */
#include <features.h>

#ifndef __GLIBC__
#include <sys/single_threaded.h>

char __libc_single_threaded; /* 0, as in a process with threads */
#endif
