#!/bin/bash
# `cpuslab set` and `cpuslab trim` change running programs that know nothing of it: one option or several, by several
# commands at once, in every vCPU mode; and they say what is wrong where the process does not answer, ended, is
# another user's, or where an option cannot be changed.
set -u
# shellcheck source-path=SCRIPTDIR source=shared/sight.bash
. "$(dirname "$0")/shared/sight.bash"

# value NAME: what is in force in $pid.
value() {
	"$cpuslab" info --options "$pid" | sed -n "s/^$1:\([^ ]*\).*/\1/p"
}

# status WANTED TEXT COMMAND...: ends with that status, and says that text on standard error.
status() {
	local wanted=$1 text=$2 got
	shift 2
	"$@" >"$work/said" 2>"$work/error"
	got=$?
	[ $got -eq "$wanted" ] || fail "$*: status $got, not $wanted: $(cat "$work/error")"
	[ -z "$text" ] || grep -q -- "$text" "$work/error" || fail "$*: does not say '$text': $(cat "$work/error")"
}

for options in vcpu:auto vcpu:slot hardened:1; do
	CPUSLAB_OPTIONS=$options begin "$build/tests/target_crowd" 4 1000
	[ "$(value decay)" = 1000 ] || fail "at first: $(value decay)"
	status 0 '' "$cpuslab" set "$pid" decay:100,dirty:4M
	[ "$(value decay) $(value dirty)" = '100 4M' ] || fail "$options: not set: $(value decay) $(value dirty)"
	status 0 '' "$cpuslab" trim "$pid"
	grep -qE '^[0-9]+ KiB of the heap went back' "$work/said" || fail "trim: $(cat "$work/said")"

	# What is refused changes nothing, and is named.
	status 1 "'hardened:1' is fixed" "$cpuslab" set "$pid" decay:5,hardened:1
	status 1 "'dirty:x' is no option, or not with that value" "$cpuslab" set "$pid" decay:5,dirty:x
	status 2 key:value "$cpuslab" set "$pid" trim
	status 2 usage "$cpuslab" set "$pid"
	status 2 '--wait' "$cpuslab" set --wait=x "$pid" decay:1
	[ "$(value decay)" = 100 ] || fail "$options: refused, and set"

	# Several at once: each is answered, and the last one counts.
	commands=()
	for i in 1 2 3 4 5 6 7 8; do
		"$cpuslab" set --wait=60 "$pid" "dirty:${i}M,decay:$i" 2>"$work/error.$i" &
		commands+=($!)
	done
	for i in "${!commands[@]}"; do
		wait "${commands[i]}" || fail "$options: one of several: $(cat "$work"/error.*)"
	done
	[ "$(value dirty)" = "$(value decay)M" ] || fail "$options: a mixture: $(value dirty) $(value decay)"

	# One that does not answer; afterwards nothing is left of the request.
	before=$(value decay)
	kill -STOP "$pid"
	status 3 'did not answer within 0.3 s: it is stopped; nothing was done' "$cpuslab" set --wait=0.3 "$pid" decay:4242
	kill -CONT "$pid"
	status 0 '' "$cpuslab" set "$pid" guard_second:7
	[ "$(value decay)" = "$before" ] || fail "$options: a request that was taken back was obeyed"
	kill -KILL "$pid"
done

# A program that only waits.
begin "$build/tests/target_garbled" magazine.slot 0xffffffffff 8
status 3 'did not answer within 0.2 s: it allocates and frees nothing' "$cpuslab" set --wait=0.2 "$pid" decay:1
status 3 'did not answer' "$cpuslab" trim --wait=0.2 "$pid"
kill -KILL "$pid"

# None, or none of ours.
status 1 'no such process' "$cpuslab" set 999999999 decay:1
sleep 60 &
disown
begun+=($!)
status 1 'does not run on cpuslab' "$cpuslab" trim $!

# Another user's: the kernel decides, as for a debugger.
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
	begin "$build/tests/target_crowd" 1 100
	cp "$cpuslab" "$work/cpuslab"
	chmod 755 "$work" "$work/cpuslab"
	status 1 'belongs to user 0' setpriv --reuid=65534 --regid=65534 --clear-groups "$work/cpuslab" set "$pid" decay:1
	[ "$(value decay)" = 1000 ] || fail "set by another user"
fi
