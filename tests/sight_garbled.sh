#!/bin/bash
# A process whose root record was written over: whoever looks at it says so, and does not go where that leads.
set -u
# shellcheck source-path=SCRIPTDIR source=shared/sight.bash
. "$(dirname "$0")/shared/sight.bash"

# looks: by each command that reads all of a process.
looks() {
	local command
	for command in info 'info --report' 'top --once --delay=0.05' map 'profile --seconds=0'; do
		# shellcheck disable=SC2086
		"$cpuslab" $command "$pid" >/dev/null 2>"$work/error"
		[ $? -eq 1 ] && grep -qx "cpuslab ${command%% *}: process $pid (.*): its root record cannot be made sense of" "$work/error" ||
			fail "$1, $command: $(cat "$work/error")"
	done
}

while read -r name value size; do
	begin "$build/tests/target_garbled" "$name" "$value" "$size"
	looks "$name"
	kill -KILL "$pid"
done <<'END'
cache 0 64
cache.number 0x10000000 4
cache.number -8 8
depot.capacity 0xffffffffffff0000 2
linked.secret 0x100000 8
linked_slab.base 0x7fffffff0000 8
slab.in_use 8 0xffffffff
slab 0 0x7fffffff
region 0 0x40000000
region.base 0xfffff000 8
bank.areas 0x123456 8
area 0 8
area.row 0 0
area.row 0x100000000 0
area.bank_caches 0 0
area.bank_caches 0x1000000 0
area.group_bytes -1 0
area.row_bytes 0x40000000 0
standby.turns_bits 64 0
standby.pages_bits 99 0
headroom.pages_shift 4000 0
huge.waiting_each 0 0
END
# What is as it should be is still looked at.
begin "$build/tests/target_garbled" magazine.slot 0xffffffffff 8
"$cpuslab" info "$pid" >/dev/null 2>"$work/error" || fail "$(cat "$work/error")"
