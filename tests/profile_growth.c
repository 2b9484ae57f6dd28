/* SPDX-License-Identifier: MIT */
/*
 * profile_growth: a profile is written whenever the bytes in use have grown by a given number since the last
 * one, and not before: with any number that the option accepts, up to the largest.
 */
#include "check.h"

#include "options/options.h"
#include "profile/dump.h"
#include "profile/profile.h"

static char folder[] = "/tmp/profile_growth.XXXXXX";

/* Checks with so many bytes in use; returns whether that wrote the `count`th profile, which is removed. */
static bool is_written(uint64_t in_use, unsigned count)
{
	char path[128];

	profile.tables->bytes_in_use = in_use;
	profile_look();
	snprintf(path, sizeof path, "%s/p.%d.%u.pb", folder, (int)getpid(), count);
	return unlink(path) == 0;
}

int main(void)
{
	static const uint64_t growths[] = {1, 1 << 20, UINT64_C(1) << 63, (UINT64_C(1) << 63) + 1,
					   UINT64_MAX - 7};
	char prefix[64];
	unsigned written = 0;
	uint64_t last = 0;

	check_watchdog(60);
	CHECK(mkdtemp(folder));
	snprintf(prefix, sizeof prefix, "%s/p", folder);
	CHECK(setenv("CPUSLAB_PROFILE", prefix, 1) == 0);
	profile_begin();
	profile.wanted = 1;
	CHECK(profile_settle());
	for (size_t i = 0; i < sizeof growths / sizeof growths[0]; i++) {
		options.profile_growth = growths[i];
		for (int time = 0; time < 2 && last <= UINT64_MAX - growths[i]; time++) {
			CHECK(!is_written(last + growths[i] - 1, written + 1), "%zu", i);
			last += growths[i];
			CHECK(is_written(last, ++written), "%zu", i);
		}
		CHECK(!is_written(last, written + 1), "%zu", i);
		CHECK(!is_written(last / 2, written + 1), "%zu", i);
	}
	CHECK(written == 5 && rmdir(folder) == 0, "%u", written);
	return 0;
}
