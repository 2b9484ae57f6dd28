#!/bin/bash
# SPDX-License-Identifier: MIT
# The command reads a process whose heap lies in a hole between others' mappings, where the page map has the heap's part alone.
# shellcheck source=shared/sight.bash
. "$(dirname "$0")/shared/sight.bash"

export CPUSLAB_OPTIONS=reserve:0
begin "$build/tests/target_hole"
unset CPUSLAB_OPTIONS
"$cpuslab" info -T "$pid" >"$work/totals" || fail "no totals"
grep -q 'In use: 10000$' "$work/totals" || fail "$(cat "$work/totals")"
[ "$(in_use malloc-1024)" = 10240000 ] || fail "$("$cpuslab" info "$pid")"
"$cpuslab" map "$pid" >"$work/map" || fail "no map"
[ "$(grep -c '^[0-9a-f]\{14\}' "$work/map")" -ge 4 ] || fail "$(cat "$work/map")"
