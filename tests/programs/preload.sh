# shellcheck shell=bash
# How a real program is run under the library, and how its runs are compared.  Sourced by every script here.
#
#   CPUSLAB_BUILD    the build folder that holds libcpuslab.so
#   CPUSLAB_LIBRARY  another library to preload instead: tells a bug of ours from a bug that any preload shows
#   CPUSLAB_OPTIONS  passed on to the library, so one script serves every mode
#   CPUSLAB_KEEP     a folder that gets what the runs without the library left, in a folder of the script's name
#   CPUSLAB_KEPT     such a folder: what is there is not run again.  Who names one answers for it that programs are the same
#
# A script ends with 0 (passed), 77 (skipped: a program is missing) or anything else (failed).
set -eu

: "${CPUSLAB_BUILD:=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/build}"
library=$(realpath -m "${CPUSLAB_LIBRARY:-$CPUSLAB_BUILD/libcpuslab.so}")
[ -r "$library" ] || {
	echo "no library at $library: build first, or set CPUSLAB_BUILD" >&2
	exit 1
}
name=$(basename "$0" .sh)
scratch=$(mktemp -d "${TMPDIR:-/tmp}/cpuslab-$name.XXXXXX")
mkdir "$scratch/home" "$scratch/plain" "$scratch/preload"
unset LD_PRELOAD MAKEFLAGS MFLAGS MAKELEVEL
[ -z "${CPUSLAB_KEEP:-}" ] || rm -rf "${CPUSLAB_KEEP:?}/$name" # of an earlier run
export LC_ALL=C TZ=UTC HOME="$scratch/home"
trap end EXIT

# What the runs without the library left are plain, plain.STEP.out, plain.STEP.err and what else begins with it.
[ ! -d "${CPUSLAB_KEPT:-/nowhere}/$name" ] || cp -a "$CPUSLAB_KEPT/$name/." "$scratch"

# Kept is what was found equal, and all of it.
keep() {
	local kept=$CPUSLAB_KEEP/$name
	mkdir -p "$CPUSLAB_KEEP"
	mkdir "$scratch/kept"
	mv "$scratch"/plain* "$scratch/kept"
	mv "$scratch/kept" "$kept"
}

end() {
	local status=$?
	[ "$status" -ne 0 ] || [ -z "${CPUSLAB_KEEP:-}" ] || keep || status=1
	rm -rf "$scratch"
	exit "$status"
}

fail() {
	echo "FAIL $name: $*" >&2
	exit 1
}

# needs PROGRAM...: the whole script is skipped where one is missing.
needs() {
	local program
	for program in "$@"; do
		command -v "$program" >/dev/null 2>&1 || {
			echo "skipped $name: no $program on this machine"
			exit 77
		}
	done
}

# write_query: $scratch/query.sql, some of everything that sqlite3 does, for runs that are not about sqlite3 alone.
write_query() {
	cat >"$scratch/query.sql" <<'SQL'
CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT, note BLOB);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
INSERT INTO t SELECT i, 'name ' || (i * 7919 % 20011), zeroblob(i % 3000) FROM n;
CREATE INDEX t_name ON t(name);
DELETE FROM t WHERE id % 3 = 0;
SELECT count(*), total(length(note)), min(name), max(name) FROM t;
SELECT length(json_group_array(json_object('name', name))) FROM t;
PRAGMA integrity_check;
SQL
}

# preloaded COMMAND...: runs it with the library in front of libc's malloc.
preloaded() {
	LD_PRELOAD="$library" "$@"
}

# prove_bound COMMAND...: runs the command under preload and asks the dynamic linker, for every process that the
# command started, whether it took `malloc` or `free` from the library.  A process with no such line was not
# tested at all, whatever its output said.
prove_bound() {
	local trace="$scratch/bindings" file processes=0
	rm -rf "$trace"
	mkdir "$trace"
	LD_DEBUG=bindings LD_DEBUG_OUTPUT="$trace/trace" preloaded "$@" >"$trace/out" 2>"$trace/err" ||
		fail "'$*' ended with status $? under preload: $(cat "$trace/err")"
	for file in "$trace"/trace.*; do
		[ -s "$file" ] || continue
		grep -qE "to $library \[0\]: normal symbol \`(malloc|calloc|realloc|free|_Znwm|_ZdlPv)'" "$file" ||
			fail "a process of '$*' did not take malloc from the library: $(head -n 3 "$file")"
		processes=$((processes + 1))
	done
	[ "$processes" -gt 0 ] || fail "'$*' left no trace of the dynamic linker: is it static?"
	echo "  bound: $processes process(es) of '$1' took malloc from the library"
}

# prove_mapped PID: the same for a process that is running.
prove_mapped() {
	grep -qF "$library" "/proc/$1/maps" || fail "process $1 does not map the library"
	echo "  mapped: process $1 holds the library"
}

# compare_output STEP: what the two runs of STEP wrote must not differ.
compare_output() {
	diff -u "$scratch/plain.$1" "$scratch/preload.$1" >"$scratch/difference" && return
	head -n 40 "$scratch/difference" >&2
	fail "$1 differs under preload"
}

# in_both STEP COMMAND...: runs the command in the folder of each side, plain (if that is not kept) and preloaded; exit status,
# standard output and standard error must be the same.  The outputs stay in $scratch/{plain,preload}.STEP.*.
in_both() {
	local step=$1 plain=0 preload=0
	shift
	if [ -e "$scratch/plain.$step.status" ]; then
		plain=$(cat "$scratch/plain.$step.status")
	else
		(cd "$scratch/plain" && "$@") >"$scratch/plain.$step.out" 2>"$scratch/plain.$step.err" </dev/null || plain=$?
		echo "$plain" >"$scratch/plain.$step.status"
	fi
	(cd "$scratch/preload" && preloaded "$@") >"$scratch/preload.$step.out" 2>"$scratch/preload.$step.err" \
		</dev/null || preload=$?
	[ "$plain" -eq "$preload" ] || {
		tail -n 20 "$scratch/preload.$step.err" >&2
		fail "$step ended with status $preload under preload, with $plain without"
	}
	[ "$plain" -eq 0 ] || {
		tail -n 20 "$scratch/plain.$step.err" >&2
		fail "$step ended with status $plain even without preload"
	}
	compare_output "$step.out"
	compare_output "$step.err"
	echo "  same: $step"
}

# same_files FILE...: made by both sides in their own folders, and equal to the last byte.
same_files() {
	local file
	for file in "$@"; do
		cmp "$scratch/plain/$file" "$scratch/preload/$file" || fail "$file differs under preload"
	done
	echo "  same files: $#"
}
