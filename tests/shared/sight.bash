# shellcheck shell=bash
# Sourced by the tests that look at processes from outside.  Each starts programs on the library with `begin`;
# all are ended with the test.
build=${CPUSLAB_BUILD:?run by ctest, or set it to the build folder}
cpuslab=$build/cpuslab
[ -z "${CPUSLAB_SANITIZE:-}" ] || { echo "skipped: a sanitizer's malloc would be the one that is seen" && exit 77; }
work=$(mktemp -d)
begun=()

end() {
	[ ${#begun[@]} -eq 0 ] || kill -KILL "${begun[@]}" 2>/dev/null
	rm -rf "$work"
}
trap end EXIT

fail() {
	printf '%s\n' "$*" >&2
	exit 1
}

# begin PROGRAM ARGS...: on the library, until it has written a line; its pid is in $pid.
begin() {
	: >"$work/lines"
	LD_PRELOAD=${library-$build/libcpuslab.so} "$@" >"$work/lines" &
	pid=$!
	disown "$pid"
	begun+=("$pid")
	eventually lines 1
}

# lines COUNT: the last program begun has written so many.
lines() {
	[ "$(wc -l <"$work/lines")" -ge "$1" ]
}

# eventually COMMAND...: within half a minute.
eventually() {
	local i
	for ((i = 0; i < 300; i++)); do
		! "$@" || return 0
		sleep 0.1
	done
	fail "never: $*"
}

# in_use CACHE: bytes in the process $pid, as counted; 0 before there is one.
in_use() {
	"$cpuslab" info "$pid" "$1" 2>/dev/null | awk 'NR == 2 { bytes = $2 * $3 } END { print bytes + 0 }'
}

# leaked_since BYTES: target_leak has lost so much more than then that it is most of what it has in use, however slow
# the machine is.
leaked_since() {
	[ $(($(in_use malloc-960) - $1)) -ge 4000000 ]
}

# waits_at PID: this is `cpuslab profile`, which has said what it wants: it handles SIGINT and sleeps.
waits_at() {
	[ "/proc/$1/exe" -ef "$cpuslab" ] && grep -q '^SigCgt:.*[2367abef]$' "/proc/$1/status" && grep -q ') S ' "/proc/$1/stat"
}
