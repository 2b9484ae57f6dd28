# shellcheck shell=sh
# Sourced by the tests that look into the library's file, which must be the one that is shipped for x86-64.
# CPUSLAB_BUILD is the build folder (default: build).
here=$(cd "$(dirname "$0")" && pwd)
build=${CPUSLAB_BUILD:-$here/../build}
library=$build/libcpuslab.so
skip() {
	echo "skipped: $*"
	exit 77
}
# needs COMMAND...
needs() {
	for command in "$@"; do
		command -v "$command" >/dev/null || skip "no $command"
	done
}
[ "$(uname -m)" = x86_64 ] || skip "not x86-64"
[ "${CPUSLAB_BUILD_TYPE:-Release}" = Release ] || skip "a ${CPUSLAB_BUILD_TYPE} build"
[ "${CPUSLAB_COMPILER:-GNU}" = GNU ] || skip "compiled by ${CPUSLAB_COMPILER}"
[ -z "${CPUSLAB_SANITIZE:-}" ] || skip "a sanitizer build"
[ -e "$library" ] || { echo "no library in $build" >&2; exit 1; }
