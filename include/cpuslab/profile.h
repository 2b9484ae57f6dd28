/* SPDX-License-Identifier: MIT */
/*
 * cpuslab/profile: heap profiles by sampling: which calls allocated what is in use, and what was allocated.
 *
 * Off by default, and without any cost then.  While a profile runs, objects are watched with the probability
 * 1 - exp(-size / interval), and each allocation of one notes its stack, also those by functions that must
 * not wait (cpuslab_cache_alloc_nowait and the like).  At the usual interval or a larger one there are about
 * 1024 samples in a second of CPU time at most: where there would be more the interval is widened for a
 * while, and each sample counts under the interval that it was taken with, so that totals stay right.
 *
 * The same can be had without a change to a program: by CPUSLAB_OPTIONS (profile, profile_at_exit,
 * profile_growth, profile_high, profile_signal), and from outside by `cpuslab profile`.
 */
#ifndef CPUSLAB_PROFILE_H
#define CPUSLAB_PROFILE_H

#include <cpuslab/cpuslab.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Starts a profile with a mean of `interval` bytes between samples; 0 stands for 524288.  What one that ran
 * before has noted is forgotten.  Returns 0; or -1 with errno ENOMEM.  Thread-safe.
 */
CPUSLAB_API int cpuslab_profile_start(size_t interval);

/* Ends the profile.  What it has noted can still be written.  Async-signal-safe. */
CPUSLAB_API void cpuslab_profile_stop(void);

enum cpuslab_profile_format {
	CPUSLAB_PROFILE_PROTO, /* pprof's profile.proto, not compressed: go tool pprof, speedscope */
	CPUSLAB_PROFILE_TEXT,  /* gperftools' text, heap_v2: jeprof, pprof */
};

/*
 * Writes the profile that runs, or ran last, to a file descriptor.  Returns 0; or -1 with errno as write(2)
 * sets it, EINVAL for no such format, ENODATA when there was no profile, or EBUSY when one is being written.
 * Async-signal-safe; keeps no lock and allocates nothing.
 */
CPUSLAB_API int cpuslab_profile_write(int file, enum cpuslab_profile_format format);

/*
 * Writes it as CPUSLAB_PROFILE_PROTO to a new file, PREFIX.PID.NUMBER.pb: the prefix is the value of the
 * environment variable CPUSLAB_PROFILE, else "cpuslab" in the current folder.  Else as cpuslab_profile_write.
 */
CPUSLAB_API int cpuslab_profile_dump(void);

#ifdef __cplusplus
}
#endif
#endif
