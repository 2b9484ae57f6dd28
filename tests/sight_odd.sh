#!/bin/bash
# Processes in odd states: the first thread has ended; a zombie; numbers of another namespace; a program without the library.
# And outputs that take nothing.  Each command ends with the figures, or with one line that says why not.
set -u
# shellcheck source-path=SCRIPTDIR source=shared/sight.bash
. "$(dirname "$0")/shared/sight.bash"
cd "$work" || exit 2

commands=("info" "info -T" "info -n" "info --json" "map" "top --once" "profile --seconds=0")

# refused PID TEXT [COMMAND...]: each command ends with this one line, behind a prefix, and nothing else.
refused() {
	local pid=$1 text=$2 command
	shift 2
	for command in "${commands[@]}"; do
		# shellcheck disable=SC2086
		"$@" "$cpuslab" $command "$pid" >out 2>error
		[ $? -eq 1 ] && [ ! -s out ] && [ "$(wc -l <error)" -eq 1 ] &&
			grep -q "^cpuslab ${command%% *}: .*$text" error || fail "$command, $text: $(cat out error)"
	done
}

# ---- the first thread has ended ------------------------------------------------------------------------------------

begin "$build/tests/target_headless"
is_headless() {
	grep -q ') Z ' "/proc/$pid/stat"
}
eventually is_headless
for command in "${commands[@]}"; do
	# shellcheck disable=SC2086
	"$cpuslab" $command "$pid" >out 2>error || fail "$command without the first thread: $(cat error)"
	[ -s out ] || fail "$command without the first thread: nothing"
done
[ "$(in_use malloc-1008)" -eq $((1000 * 1008)) ] || [ "$(in_use malloc-1024)" -eq $((1000 * 1024)) ] ||
	fail "1000 objects of 1000 bytes: $("$cpuslab" info "$pid")"
"$cpuslab" info -T "$pid" | awk '$1 == "heap" { exit !($2 > 1000000) }' || fail "nothing is resident: $("$cpuslab" info -T "$pid")"
LC_ALL=C "$cpuslab" map "$pid" | awk 'NR == 2 { exit !($3 > 0) }' || fail "the map shows nothing resident"
"$cpuslab" profile --seconds=0.5 --interval=4K --total "$pid" >top 2>error || fail "no profile: $(cat error)"
grep -q ' go_on at headless\.c:[0-9]*$' top || fail "no function in the profile: $(cat top)"
"$cpuslab" info target_headless >out 2>error || fail "it is not found by its name: $(cat error)"
kill -KILL "$pid"
gone() {
	[ "$(compgen -G "/proc/$pid/task/*" | wc -l)" -le 1 ]
}
eventually gone
"$cpuslab" info "$pid" 2>error && fail "it has ended"
grep -q 'the process has ended\|no such process' error || fail "$(cat error)"

# So the library's own profile has its stacks and what is mapped.
CPUSLAB_OPTIONS=profile_signal:12 CPUSLAB_PROFILE=$work/signal begin "$build/tests/target_headless"
eventually is_headless
kill -USR2 "$pid"
started() {
	"$cpuslab" profile --seconds=0 --format=folded --total "$pid" 2>/dev/null | grep -q ';go_on at headless\.c:[0-9]* [0-9]*$'
}
eventually started
kill -USR2 "$pid"
eventually test -s "$work/signal.$pid.1.pb"
if command -v go >/dev/null; then
	PPROF_TMPDIR=$work GOTOOLCHAIN=local go tool pprof -raw "$work/signal.$pid.1.pb" 2>/dev/null | grep -q 'target_headless [0-9a-f]\{40\}' ||
		fail "nothing is mapped in the library's profile"
fi
kill -KILL "$pid"

# ---- a zombie, and one that has not begun --------------------------------------------------------------------------

# It ends when its parent is a program that does not wait for it.
bash -c '(until grep -qx sleep "/proc/$$/comm"; do sleep 0.1; done) & echo $! >zombie; exec sleep 1000' &
begun+=($!)
eventually test -s zombie
zombie=$(cat zombie)
is_zombie() {
	grep -q ') Z ' "/proc/$zombie/stat"
}
eventually is_zombie
refused "$zombie" 'the process has ended'
refused 2147483646 'no such process'
refused $$ 'it does not run on cpuslab'

# ---- another namespace ---------------------------------------------------------------------------------------------

begin "$build/tests/target_odd"
if unshare --pid --fork true 2>/dev/null; then
	# What /proc calls 1 is another process than the command would read, and write to.
	for number in "$pid" 1; do
		refused "$number" 'that of another pid namespace' unshare --pid --fork
	done
	unshare --pid --fork "$cpuslab" export --listen 127.0.0.1:0 2>error && fail "export serves another namespace"
	grep -q '^cpuslab export: /proc is that of another pid namespace' error || fail "$(cat error)"
	if unshare --pid --fork --mount-proc true 2>/dev/null; then
		library='' begin unshare --pid --fork --mount-proc env "LD_PRELOAD=$build/libcpuslab.so" "$build/tests/target_leak"
		inside=$(pgrep -P "$pid")
		begun+=("$inside")
		"$cpuslab" info -T "$inside" >out 2>error || fail "from outside of its namespace: $(cat error)"
	fi
else
	echo "no pid namespace can be had here: none was tried"
fi

# ---- outputs that take nothing -------------------------------------------------------------------------------------

begin "$build/tests/target_odd"
for command in "${commands[@]}" "map --svg=-" "map --png=-"; do
	# shellcheck disable=SC2086
	"$cpuslab" $command "$pid" >&- 2>error
	[ $? -eq 1 ] && grep -q 'standard output: Bad file descriptor$\|built without libpng$' error || fail "$command, closed: $(cat error)"
	[ "$(grep -c 'standard output' error)" -le 1 ] || fail "$command says it twice: $(cat error)"
	# shellcheck disable=SC2086
	"$cpuslab" $command "$pid" 2>error | head -n 1 >/dev/null
	[ "$(wc -l <error)" -le 1 ] || fail "$command into a pipe that is closed early: $(cat error)"
done
# Marks that turn the direction of text around would show a line's figures in another order.
"$cpuslab" info "$pid" 'turned_*' | grep -q '^turned_?????????_???é ' || fail "a name turns text around: $("$cpuslab" info "$pid" 'turned_*')"
exit 0
