/* SPDX-License-Identifier: MIT */
/*
 * cpuslab/profile: heap profiles by sampling: which calls allocated what is in use, and what was allocated in
 * all.
 *
 * Off by default, and then without any cost.  While a profile runs, objects are watched with the probability
 * 1 - exp(-size / interval), and each allocation of a watched object records its stack, also in functions
 * that must not wait (cpuslab_cache_alloc_nowait and the like).  At the usual interval or a larger one there
 * are at most about 1024 samples in a second of CPU time: above that the interval is widened for a while, and
 * each sample counts under the interval that it was taken with, so that totals stay right.
 *
 * Programs can be profiled unchanged, too: by CPUSLAB_OPTIONS (profile, profile_at_exit, profile_growth,
 * profile_high, profile_signal), and from outside by `cpuslab profile`.
 */
#ifndef CPUSLAB_PROFILE_H
#define CPUSLAB_PROFILE_H

#include <cpuslab/cpuslab.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Starts a profile with a mean of `interval` bytes between samples; 0 stands for 524288.  Discards what an
 * earlier profile recorded.  Returns 0; or -1 with errno ENOMEM.  Thread-safe.
 */
CPUSLAB_API int cpuslab_profile_start(size_t interval);

/* Ends the profile.  What it recorded can still be written.  Async-signal-safe. */
CPUSLAB_API void cpuslab_profile_stop(void);

enum cpuslab_profile_format {
	CPUSLAB_PROFILE_PROTO, /* pprof's profile.proto, uncompressed: go tool pprof, speedscope */
	CPUSLAB_PROFILE_TEXT,  /* gperftools' text, heap_v2: jeprof, pprof */
};

/*
 * Writes the running profile, or the last one, to a file descriptor.  Returns 0; or -1 with errno as write(2)
 * sets it, EINVAL for an unknown format, ENODATA if there was no profile, or EBUSY while another call writes
 * one.  Async-signal-safe; keeps no lock and allocates nothing.
 */
CPUSLAB_API int cpuslab_profile_write(int file, enum cpuslab_profile_format format);

/*
 * Writes the profile as CPUSLAB_PROFILE_PROTO to a new file, PREFIX.PID.NUMBER.pb; PREFIX is the value of the
 * environment variable CPUSLAB_PROFILE, else "cpuslab" in the current folder.  Otherwise as
 * cpuslab_profile_write.
 */
CPUSLAB_API int cpuslab_profile_dump(void);

#ifdef __cplusplus
}
#endif
#endif
