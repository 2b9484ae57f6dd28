#!/bin/sh
# SPDX-License-Identifier: MIT
# The table in docs/hardening.md that says when each mode stops which mistake has the rows that the test corruption
# checks, and no others.
set -eu

table=$(sed -n '/^<!-- promises -->$/,/^<!-- end -->$/p' "$(dirname "$0")/../docs/hardening.md" | grep '^|' | tail -n +3)
promised=$("$CPUSLAB_BUILD/tests/corruption" promises)
if [ "$table" != "$promised" ]; then
	echo "docs/hardening.md is to have, between <!-- promises --> and <!-- end -->:"
	echo "$promised"
	exit 1
fi
