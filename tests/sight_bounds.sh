#!/bin/bash
# A look at a process has bounds of time, memory and output, whatever stands in it: one whose memory never comes, one
# that claims very much, one that leads around in circles, one whose counts are as large as numbers get.
set -u
# shellcheck source-path=SCRIPTDIR source=shared/sight.bash
. "$(dirname "$0")/shared/sight.bash"
cd "$work" || exit 2

# ---- memory that never comes -----------------------------------------------------------------------------------------

never() {
	READER_NEVER=$1 LD_PRELOAD=$build/tests/libreader_stops.so "$cpuslab" "${@:2}"
}
# By a name that no other test's processes have.
leak=bounded_$$
cp "$build/tests/target_leak" $leak
begin ./$leak
stuck=$pid
begin ./$leak
started=()
for command in info 'info --numa' 'top --once' map 'profile --seconds=0'; do
	# shellcheck disable=SC2086
	(never "$stuck" $command "$stuck" >"${command// /_}.out" 2>"${command// /_}.err" && exit 0 || exit $(($? + 100))) &
	started+=($!)
done
# What comes slowly is waited for, for longer than what does not come at all.
READER_SLOW=30 LD_PRELOAD=$build/tests/libreader_stops.so "$cpuslab" info "$pid" >slow.out 2>slow.err &
slow=$!
# In a terminal, which is put back as it was.
terminal() {
	command tmux -S "$work/tmux" "$@"
}
end_terminal() {
	terminal kill-server 2>/dev/null
	end
}
trap end_terminal EXIT
shows() {
	terminal capture-pane -p | grep -q -- "$1"
}
tmux=$(command -v tmux)
if [ -n "$tmux" ]; then
	terminal -f /dev/null new-session -d -x 100 -y 20 "stty -a >before
		READER_NEVER=$stuck READER_NEVER_AFTER=$work/never LD_PRELOAD=$build/tests/libreader_stops.so \
		LANG=C.UTF-8 TERM=screen '$cpuslab' top --delay=0.1 $stuck 2>top.err
		echo ended \$? >ended; stty -a >after; sleep 1000"
	eventually shows "process $stuck"
	: >never
fi
# Others are shown: by its name the one is found that can be read.
never "$stuck" info $leak >named.out 2>named.err || fail "one process hides the others: $(cat named.err)"
grep -q '^malloc-960 ' named.out || fail "not the one that can be read: $(cat named.out)"
grep -qx "cpuslab info: process $stuck cannot be read within bounds, left out" named.err || fail "$(cat named.err)"
for child in "${started[@]}"; do
	wait "$child"
	[ $? -eq 101 ] || fail "a command did not end with 1: $(cat -- *.err)"
done
for command in info info_--numa top_--once map profile_--seconds=0; do
	grep -qx "cpuslab ${command%%_*}: process $stuck: it cannot be read within bounds of time" "$command.err" ||
		fail "$command: $(cat "$command.err")"
done
wait $slow || fail "what comes slowly is not waited for: $(cat slow.err)"
grep -q '^malloc-960 ' slow.out || fail "not what came slowly: $(cat slow.out)"
if [ -n "$tmux" ]; then
	until [ -s after ]; do sleep 0.1; done
	grep -qx 'ended 1' ended || fail "in a terminal: $(cat ended top.err)"
	grep -qx "cpuslab top: process $stuck: it cannot be read within bounds of time" top.err || fail "in a terminal: $(cat top.err)"
	cmp before after || fail "the terminal is not as it was: $(diff before after)"
	[ "$(terminal display-message -p '#{alternate_on}')" = 0 ] || fail "the screen is not left"
else
	echo "there is no tmux: the screen was not tried"
fi
# A profile that cannot be ended as others are is not left to run.
READER_NEVER=$pid READER_NEVER_AFTER=$work/now LD_PRELOAD=$build/tests/libreader_stops.so \
	"$cpuslab" profile --seconds=1000 --interval=64K --output=profile.pb "$pid" 2>profile.err &
profiler=$!
eventually waits_at $profiler
"$cpuslab" profile "$pid" >running || fail "a profile that runs is not read"
head -1 running | grep -q 'a sample every 65536 ' || fail "not the profile that runs: $(cat running)"
: >now
wait $profiler
[ $? -eq 1 ] || fail "the profile ended otherwise: $(cat profile.err)"
"$cpuslab" profile --seconds=1 --interval=32K "$pid" >top || fail "no profile after that"
head -1 top | grep -q 'a sample every 32768 ' || fail "the profile of before runs on: $(cat top)"

# ---- what is claimed -------------------------------------------------------------------------------------------------

# refuses COMMAND...: by its bounds of memory.
refuses() {
	"$cpuslab" "$@" "$pid" >out 2>err
	[ $? -eq 1 ] && grep -qx "cpuslab $1: process $pid: it claims more than can be read within bounds of memory" err ||
		fail "$*: $(cat err)"
}
# holds COMMAND...: ends well, or on a busy machine by its bounds of time, and writes less than 64 MiB.
holds() {
	"$cpuslab" "$@" "$pid" >out 2>err || grep -q ': it cannot be read within bounds of time$' err || fail "$what: $*: $(cat err)"
	[ "$(stat -c %s out)" -lt 67108864 ] || fail "$what: $*: writes $(stat -c %s out) bytes"
}

begin "$build/tests/target_garbled" cache 0 0x100000 magazine.cache_count many 8 magazine.caches all 8
for command in info 'info --json' 'top --once' map; do
	# shellcheck disable=SC2086
	refuses $command
done
begin "$build/tests/target_garbled" page.top number:0x7fffffffffff 8
refuses map
begin "$build/tests/target_garbled" page.top number:0xfffffffffffffe01 8
refuses map

what="pages without an end"
begin "$build/tests/target_garbled" magazine.caches fakes 8 magazine.cache_count number:1 8 cache.pages 0xffffffff fake
for command in info 'info --report' 'info --json' 'info -S' 'info --numa' 'top --once' map; do
	# shellcheck disable=SC2086
	holds $command
done
what="a list of names that is a circle"
begin "$build/tests/target_garbled" magazine.caches fakes 8 magazine.cache_count number:2000 8 \
	cache.owner circle fake cache.slab_count 1 fake
for command in info 'info --aliases' 'info --json'; do
	# shellcheck disable=SC2086
	holds $command
done
[ -s err ] || python3 -c 'import json; json.load(open("out"))' 2>err || ! command -v python3 >/dev/null || fail "no JSON: $(cat err)"
what="counts as large as numbers get"
begin "$build/tests/target_garbled" magazine.caches fakes 8 magazine.cache_count number:100 8 \
	cache.slab_count -1 fake cache.full_slabs -1 fake cache.allocated -1 fake cache.created -1 fake \
	cache.freed -2 fake depot.filled -1 fake depot.objects -3 fake depot.refills -1 fake depot.drains -1 fake \
	depot.locks -1 fake cache.slab_locks -1 fake cache.size -1 fake
for command in info 'info --report' 'info --json' 'info --prometheus' 'info --slabinfo' 'info -L' 'info -T' 'info -D' 'top --once'; do
	# shellcheck disable=SC2086
	holds $command
done
exit 0
