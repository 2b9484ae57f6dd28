#!/bin/bash
# `cpuslab top` in a real terminal: its head, rows and keys; one cache; the picker; a resize; a target that ends.
set -u
export LC_ALL=C.UTF-8
# shellcheck source-path=SCRIPTDIR source=shared/sight.bash
. "$(dirname "$0")/shared/sight.bash"

begin "$build/tests/target_crowd" 4 1000

# ---- without a terminal ------------------------------------------------------------------------------------------

"$cpuslab" top --once --delay=0.2 "$pid" >"$work/once" || fail "--once"
grep -q '^ Active / Total Objects (% used)    : [0-9]* / [0-9]* ([0-9.]*%)$' "$work/once" || fail "no head"
grep -q '^  OBJS ACTIVE  USE OBJ SIZE  SLABS OBJ/SLAB CACHE SIZE ' "$work/once" || fail "no columns"
# Threads that churn: bounds of the rate are there, in the sum and in a row.
awk '/Rates/ { if ($3 == ">=" && $4 > 0 && $6 == ">=" && $9 == "<=" && $10 != "0") all = 1 }
	/malloc-/ && $8 > 0 { row = 1 } END { exit !(all && row) }' "$work/once" || fail "no rates: $(cat "$work/once")"

# A program that counts itself lies within the bounds, also where it makes no call that is counted.  What is the least
# of top's second cannot be more than what was counted in a time that includes it.
for kind in reuse busy grow; do
	begin "$build/tests/target_bursts" $kind
	kill -USR1 "$pid" && eventually lines 2
	"$cpuslab" top --once "$pid" >"$work/once" || fail "--once"
	kill -USR1 "$pid" && eventually lines 3
	awk -v "kind=$kind" 'FNR == NR { count[FNR] = $1; time[FNR] = $2; next }
		/Rates/ { least = $4; most = $10; unit = substr(most, length(most)) }
		END { most *= unit == "K" ? 1e3 : unit == "M" ? 1e6 : unit == "G" ? 1e9 : 1
			counted = count[3] - count[2]; rate = counted / (time[3] - time[2]) * 1e9
			exit !(rate > 0 && least <= counted && (kind != "grow" || least > 0) && (kind == "busy" || rate <= most)) }' \
		"$work/lines" "$work/once" || fail "$kind: $(cat "$work/lines" "$work/once")"
	kill -KILL "$pid"
done
pid=${begun[0]}

for key in o a c s n; do
	"$cpuslab" top --once --delay=0.1 --sort=$key "$pid" | awk -v "key=$key" '
		!/malloc-/ { next }
		{ value = key == "o" ? $1 : key == "a" ? $2 : key == "c" ? $7 + 0 : key == "s" ? $4 + 0 : -substr($10, 8) }
		any && value > last { exit 1 }
		{ last = value; any = 1 }' || fail "not sorted by $key"
done

# It neither waits for keys that never come nor draws where nobody looks.
timeout 100 "$cpuslab" top "$pid" </dev/null >"$work/drawn" 2>"$work/error"
[ $? -eq 1 ] && [ ! -s "$work/drawn" ] && grep -q 'no terminal; --once' "$work/error" || fail "$(cat "$work/error")"
# One that ends between the two looks: no keys are named to who has none to press.
watched=$pid
begin "$build/tests/target_crowd" 1 10
ending=$pid pid=$watched
"$cpuslab" top --once --delay=2 "$ending" >/dev/null 2>"$work/error" &
looker=$!
sleep 0.5
kill -KILL "$ending"
wait $looker
[ $? -eq 1 ] && grep -q "^cpuslab top: process $ending\( (.*)\)\?: the process has ended$" "$work/error" || fail "$(cat "$work/error")"

# refused WANTED ARGUMENT...: a value that an option does not take, in one line.
refused() {
	local wanted=$1
	shift
	"$cpuslab" top "$@" "$pid" >"$work/drawn" 2>"$work/error"
	[ $? -eq 2 ] && [ "$(wc -l <"$work/error")" -eq 1 ] && grep -q "^cpuslab top: $wanted, not '" "$work/error" ||
		fail "$*: $(cat "$work/error")"
}
refused '--delay takes seconds from 0.05 to 3600' --delay=0
refused '--sort takes one of the letters of --help' --sort=on

# ---- in a terminal --------------------------------------------------------------------------------------------------

command -v tmux >/dev/null || { echo "there is no tmux: the screen was not tried" && exit 0; }
# A server that was told to end may still take the next one's call: each terminal has its own.
terminals=0
tmux() {
	command tmux -S "$work/tmux$terminals" "$@"
}
end_terminal() {
	tmux kill-server 2>/dev/null
	end
}
trap end_terminal EXIT

screen() {
	tmux capture-pane -p "$@"
}
# shows PATTERN: somewhere on the screen, with a basic regular expression.
shows() {
	screen | grep -q -- "$1"
}
# first NAME-PATTERN: the row below the columns' names.
first() {
	screen | awk '/CACHE SIZE/ { getline; print $NF; exit }' | grep -q -- "$1"
}
press() {
	tmux send-keys "$@"
}

start() {
	terminals=$((terminals + 1))
	tmux -f /dev/null new-session -d -x 110 -y 30 "LANG=C.UTF-8 TERM=${TERM_IN:-screen-256color} '$cpuslab' top $*; echo ended \$?; sleep 60"
}

start --delay=0.2 "$pid"
eventually shows 'Active / Total Objects'
eventually shows "process $pid"
eventually shows '\(█\|▒\|·\)\{30\}' # the bar
eventually shows ' Used : .*\(▁\|█\)'    # the sparkline
press n
eventually first '^malloc-16$'
press i
eventually first '^malloc-[0-9]\{5,\}$\|^malloc-[4-9][0-9]\{3\}$'
press i s
eventually first '^malloc-[0-9]\{4,\}$'
press e
eventually shows 'malloc-[0-9]\{6\}' # caches without slabs too
press e n Down Enter
eventually shows 'Slabcache: malloc-32 ' # the second row
eventually shows 'In use :'
press Escape
eventually shows 'CACHE SIZE'
tmux resize-window -x 90 -y 20
eventually eval '[ "$(screen | wc -l)" -eq 20 ] && screen | tail -n 2 | grep -q malloc-'
# Lines that are too long end where the screen does, and leave the row below alone.
tmux resize-window -x 40 -y 18
eventually eval '[ "$(screen | wc -l)" -eq 18 ] && screen | sed -n 12p | grep -q "^  OBJS ACTIVE  USE OBJ SIZE "'
screen | sed -n 11p | grep -q . && fail "what is too long goes on in the next row: $(screen)"
# Names of caches are whole where a terminal usually ends, and what comes before them as well.
tmux resize-window -x 80 -y 20
eventually eval 'screen | sed -n 12p | grep -q "  SLABS CACHE SIZE MISSES/S  HOARD NAME$"'
press s e
eventually shows ' malloc-[0-9]\{6\}$'
press e
screen | grep -q '\] [0-9]*% lost$' || fail "no losses in 80 columns: $(screen)"
tmux resize-window -x 40 -y 8
sleep 0.5
tmux resize-window -x 110 -y 30
eventually shows 'CACHE SIZE'
eventually eval '[ "$(screen | grep -c malloc-)" -ge 17 ]'
screen -e | grep -q $'\e\[.*3[36]m' || fail "no colour"
press p
eventually shows "processes on cpuslab"
eventually shows "^[> ] *$pid .* target_crowd"
press Escape
eventually shows 'CACHE SIZE'
kill -KILL "$pid"
eventually shows 'the process has ended - p: other processes, q: quit'
press q
eventually shows '^ended 0'
tmux kill-server

# Without colour, from the picker, in a terminal that knows little.
begin "$build/tests/target_crowd" 1 100
TERM_IN=vt100 start --no-colour
eventually shows "^[> ] *$pid .* target_crowd"
# Ours may not be the only one on this machine; they are in the order of their numbers.
chosen() {
	screen | sed -n 's/^> *\([0-9]*\) .*/\1/p'
}
# elsewhere NUMBER: another one than that is chosen.
elsewhere() {
	local now
	now=$(chosen)
	[ -n "$now" ] && [ "$now" != "$1" ]
}
eventually elsewhere none
while elsewhere "$pid"; do
	before=$(chosen)
	[ -n "$before" ] && [ "$before" != "$pid" ] || continue
	if [ "$before" -lt "$pid" ]; then press Down; else press Up; fi
	eventually elsewhere "$before"
done
eventually shows "^> *$pid "
press Enter
eventually shows "process $pid,"
! screen -e | grep -q $'\e\[3[0-7]m' || fail "colour all the same"
press q
eventually shows '^ended 0'
tmux kill-server

# Where nothing can be put in its place it says so.
TERM_IN=dumb start "$pid"
eventually shows "cpuslab top: a terminal of type 'dumb' cannot show it; --once writes text"
eventually shows '^ended 1'
tmux kill-server
TERM_IN=nonesuch start "$pid"
eventually shows "cpuslab top: a terminal of type 'nonesuch' cannot show it; --once writes text"
tmux kill-server

# It ends with its terminal, even when nothing tells it: no key comes any more, nor is one waited for.
terminals=$((terminals + 1))
tmux -f /dev/null new-session -d -x 110 -y 30 \
	"trap '' HUP; echo \$\$ >'$work/shell'; TERM=screen exec '$cpuslab' top '$pid'"
eventually shows "process $pid"
tmux kill-server
gone() {
	! grep -q '^State:[[:space:]]*[^ZX]' "/proc/$(cat "$work/shell")/status" 2>/dev/null
}
eventually gone
exit 0
