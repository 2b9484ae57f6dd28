/* SPDX-License-Identifier: MIT */
/* The public interface to heap profiles: include/cpuslab/profile.h. */
#include <cpuslab/profile.h>

#include <errno.h>

#include "magazine/magazine.h"
#include "process/process.h"
#include "profile/dump.h"
#include "profile/profile.h"

static int result(int error)
{
	if (!error)
		return 0;
	errno = error;
	return -1;
}

CPUSLAB_API int cpuslab_profile_start(size_t interval)
{
	uint64_t wanted = interval ? interval : PROFILE_INTERVAL;

	if (!process_enter())
		return result(ENOMEM);
	/* Starts a new profile, even with the same interval, and while another thread only widens that. */
	cpuslab_profile_stop();
	uint64_t refused = profile_refused();

	__atomic_store_n(&profile.wanted, wanted, __ATOMIC_RELEASE);
	magazine_settle_profile();
	/* If none is wanted any more, another thread has ended it, or is about to start its own. */
	return result(profile_refused() == refused ? 0 : ENOMEM);
}

CPUSLAB_API void cpuslab_profile_stop(void)
{
	__atomic_store_n(&profile.wanted, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&profile.interval, 0, __ATOMIC_RELEASE);
}

CPUSLAB_API int cpuslab_profile_write(int file, enum cpuslab_profile_format format)
{
	if (format != CPUSLAB_PROFILE_PROTO && format != CPUSLAB_PROFILE_TEXT)
		return result(EINVAL);
	return result(profile_dump(file, format == CPUSLAB_PROFILE_PROTO));
}

CPUSLAB_API int cpuslab_profile_dump(void)
{
	return result(profile_dump_new());
}
