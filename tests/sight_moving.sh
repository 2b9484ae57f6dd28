#!/bin/bash
# What the command says of a process that runs is true of a moment, though it loses its CPU in the middle of what it
# reads and the process goes on meanwhile; where it never gets to read undisturbed, it says so.
set -u
# shellcheck source-path=SCRIPTDIR source=shared/sight.bash
. "$(dirname "$0")/shared/sight.bash"
cd "$work" || exit 2

mkfifo asked answered
exec {ask}<>asked {answer}<>answered
export READER_ASK=$work/asked READER_DONE=$work/answered
move() {
	printf . >&"$ask"
	head -c 1 <&"$answer" >/dev/null
}
# stopping WHERE COMMAND...: the command, which is stopped there (tests/libraries/reader_stops.c).
stopping() {
	READER_STOPS=$1 LD_PRELOAD=$build/tests/libreader_stops.so "$cpuslab" "${@:2}" || fail "$*"
}

begin "$build/tests/target_mover" asked answered

# ---- caches ----------------------------------------------------------------------------------------------------------

# live CACHE <JSON
live() {
	awk -v name="\"$1\"," '$2 == name { found = 1 } found && /"live":/ { sub(/.*"live": /, ""); print $0 + 0; exit }'
}
# look WHERE: how many objects of either size there are.
look() {
	stopping "$1" info --json -e "$pid" >json
	larger=$(live malloc-1024 <json) smaller=$(live malloc-768 <json)
}
# Whatever of the sizes is not the target's own stays.
look nowhere
((larger >= 1000 && smaller < 1000)) || fail "$larger and $smaller objects before anything moves"
others=$((larger - 1000)) other_smaller=$smaller
move
move
moved=0 interrupted=0
for ((at = 1; at < 100; at++)); do
	before=$larger
	look $at
	((larger == 1000 + others && smaller == other_smaller || larger == others && smaller == 1000 + other_smaller)) ||
		fail "stopped before piece $at: $larger objects of the larger size, and $smaller of the smaller"
	((larger == before)) || moved=$((moved + 1))
	! grep -q '"interrupted": true' json || interrupted=$((interrupted + 1))
done
((moved > 50)) || fail "it was stopped $moved times"
# Where there is much else to do it may really lose its CPU.
((interrupted < moved / 2)) || fail "stopped once, and not read again, $interrupted times of $moved"
stopping every info -T "$pid" >table
grep -q 'was interrupted' table || fail "interrupted each time, and nothing says so: $(cat table)"

# ---- profiles --------------------------------------------------------------------------------------------------------

# Every object is a sample, from the next allocation that misses.
"$cpuslab" profile --seconds=0 --interval=1 --keep "$pid" >/dev/null &
starter=$!
while kill -0 "$starter" 2>/dev/null; do
	move
done
wait "$starter" || fail "no profile"
move
move
# in_use WHERE: of one size or of the other.
in_use() {
	stopping "$1" profile --format=top "$pid" >top
	head -1 top | grep -q '^In use: \(1000\|750\)\.0 KiB,' || fail "stopped at $1: $(cat top)"
}
in_use nowhere
for at in table {1..100}; do
	in_use "$at"
	! grep -q 'came or went' top || fail "stopped once, at $at, and not read again: $(cat top)"
done
in_use every
head -1 top | grep -q '; 2000 samples came or went while it was read$' ||
	fail "all moves at each reading, and nothing says so: $(cat top)"
exit 0
