#!/bin/bash
# stress_ng.sh STRESSOR: one of stress-ng's memory stressors for a few seconds, each checking its own work.
# shellcheck source=preload.sh
. "$(dirname "$0")/preload.sh"
needs stress-ng
stressor=${1:?which stressor}
seconds=${CPUSLAB_SOAK:+60}
length=(--timeout "${seconds:-3}s")
# At its timeout this one jumps out of the signal's handler, and so out of the malloc or free that the signal may
# have interrupted with a lock taken, which POSIX leaves undefined.  By operations it takes about as long.
[ "$stressor" != tree ] || length=(--tree-ops "${seconds:-4}")

prove_bound stress-ng "--$stressor" 1 "--$stressor-ops" 2 --temp-path "$scratch"
preloaded stress-ng "--$stressor" 2 "${length[@]}" --verify --metrics-brief --temp-path "$scratch" \
	>"$scratch/out" 2>&1 || fail "stress-ng --$stressor ended with status $?: $(tail -n 30 "$scratch/out")"
grep -q 'successful run completed' "$scratch/out" || fail "$(cat "$scratch/out")"
! grep -E 'stress-ng: (fail|error):|terminated on signal|OOM|cpuslab' "$scratch/out" ||
	fail "stress-ng --$stressor reported the above"
grep -E "info:.* $stressor " "$scratch/out" | tail -n 1
