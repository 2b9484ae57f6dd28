/* SPDX-License-Identifier: MIT */
#include "page/tide.h"

#include "options/options.h"
#include "os/os.h"

#define GET(field)        __atomic_load_n(&tide->field, __ATOMIC_RELAXED)
#define SET(field, value) __atomic_store_n(&tide->field, value, __ATOMIC_RELAXED)

static void begin_fall(struct tide *tide, int64_t from)
{
	unsigned passing = GET(passing);
	bool passed = passing && from / 2 <= GET(vain_from);

	if (passed)
		SET(passing, passing - 1);
	SET(from, passed ? 0 : from);
	SET(fell_at, 0);
	SET(passed, passed);
	SET(falling, true);
}

/* The program needs again what the last fall gave back. */
static void regret(struct tide *tide, int64_t from)
{
	if (tide->lasts && os_elapsed(GET(fell_at), os_milliseconds()) >= options.decay) {
		SET(from, 0);
		return;
	}

	unsigned vain = GET(vain), log = tide->passed_log + vain * tide->more_log;
	bool most = log >= tide->most_log;

	SET(passing, (1u << (most ? tide->most_log : log)) - 1);
	SET(vain, most ? vain : vain + 1);
	SET(vain_from, from);
	SET(from, 0);
}

void tide_rose(struct tide *tide, int64_t bytes)
{
	int64_t from = GET(from);

	if (bytes > GET(high))
		SET(high, bytes);
	if (GET(falling) && bytes > 2 * GET(low) + TIDE_LEAST) {
		SET(falling, false);
		SET(passed, false);
	}
	if (from && bytes > from / 4 && !GET(falling))
		regret(tide, from);
}

bool tide_fell(struct tide *tide, int64_t bytes)
{
	int64_t high = GET(high);

	if (high < TIDE_LEAST || bytes > high / 2)
		return false;
	if (!GET(falling)) {
		if (high < TIDE_FROM)
			return false;
		begin_fall(tide, high);
	}
	SET(high, bytes);
	SET(low, bytes);
	if (!GET(from)) {
		SET(halved, GET(passed));
		return false;
	}
	if (tide->lasts)
		SET(fell_at, os_milliseconds());
	return true;
}

bool tide_lasts(struct tide *tide)
{
	if (!GET(passed))
		return false;
	uint64_t now = os_milliseconds();

	if (!GET(fell_at))
		SET(fell_at, now);
	if (os_elapsed(GET(fell_at), now) < options.decay)
		return false;
	SET(passed, false);
	return true;
}

void tide_forget(struct tide *tide)
{
	unsigned vain = GET(vain);

	if (vain)
		SET(vain, vain - 1);
	SET(passing, GET(passing) / 2);
}
