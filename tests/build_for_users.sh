#!/bin/bash
# What `make` and a plain `cmake -B` build: nothing of tests/, and no warning is an error, for a newer compiler has
# warnings that ours do not.  With CPUSLAB_DEVELOPER=ON there are both.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export CMAKE_EXPORT_COMPILE_COMMANDS=ON
unset "${!CPUSLAB_@}"

fail() {
	echo "FAIL build_for_users: $*" >&2
	exit 1
}

# configured NAME OPTION...
configured() {
	cmake -S "$here" -B "$work/$1" -G Ninja "${@:2}" >"$work/log" 2>&1 || fail "$1: $(cat "$work/log")"
	commands=$work/$1/compile_commands.json
	grep -q '/src/malloc/' "$commands" && grep -q '/tools/' "$commands" && grep -q '/bench/' "$commands" ||
		fail "$1: not even the library, the command and its benchmarks"
}

configured user
! grep -m 1 '"file": .*/tests/' "$commands" || fail 'tests are built for users'
! grep -m 1 -oE -e '-Werror[^ ]*|-pedantic-errors' "$commands" || fail 'warnings are errors for users'
! ninja -C "$work/user" -t targets all | grep '^tests/' || fail 'there are targets of tests for users'

configured developer -DCPUSLAB_DEVELOPER=ON
grep -q '"file": .*/tests/' "$commands" || fail 'no tests with CPUSLAB_DEVELOPER'
grep -q -e '-Werror' "$commands" || fail 'warnings are none with CPUSLAB_DEVELOPER'

# `make` is that build, in a folder that keeps what a developer has set there.
make -C "$here" -n BUILD="$work/user" install >"$work/make" || fail "make -n: $(cat "$work/make")"
grep -q 'cmake -S' "$work/make" || fail "make does not configure: $(cat "$work/make")"
# Nor does it refuse a folder of a plain `cmake -B`, whose generator is another.
! grep -e '-G' "$work/make" || fail 'make wants another generator in a folder that has one'
make -C "$here" -n BUILD="$work/new" >"$work/make" && grep -q -e '-G Ninja' "$work/make" || fail "make from nothing: $(cat "$work/make")"
! grep -e 'CPUSLAB_DEVELOPER' -e '-Werror' "$work/make" || fail 'make sets it'
