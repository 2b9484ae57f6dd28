/* SPDX-License-Identifier: MIT */
#ifndef CPUSLAB_BENCH_UNLOCK_SHARE_H
#define CPUSLAB_BENCH_UNLOCK_SHARE_H

#include "bench.h"

/* The share of unlocking in a profile of the allocator, for each form of unlock; part of group pagelock. */
void unlock_share(struct bench *bench);

#endif
