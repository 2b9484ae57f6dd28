#!/bin/bash
# The interface against the kept dump of it: nothing that programs were linked to is taken away or changed (docs/releasing.md).
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
build=${CPUSLAB_BUILD:?}
kept=$here/tests/golden/abi.xml
command -v abidw >/dev/null && command -v abidiff >/dev/null || {
	echo 'no abidiff on this machine (abigail-tools)'
	exit 77
}
# The dump is of gcc's release build on this architecture.
[ "$CPUSLAB_BUILD_TYPE" = Release ] && [ "$CPUSLAB_COMPILER" = GNU ] && [ "$(uname -m)" = x86_64 ] || {
	echo 'not the build that the dump was made of'
	exit 77
}
status=0
abidiff --headers-dir2 "$here/include/cpuslab" --drop-private-types "$kept" "$build/libcpuslab.so" || status=$?
# Bit 4 is any change, bit 8 one that breaks programs.
[ $((status & ~4)) -eq 0 ] || {
	echo "FAIL packages_abi: abidiff ended with $status"
	exit 1
}
# What can fail fails: a dump without one of its functions, as if the library had taken another away, and with another argument.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sed "s/cpuslab_cache_shrink/cpuslab_cache_gone/g" "$kept" >"$work/gone.xml"
! abidiff "$work/gone.xml" "$kept" >"$work/log" || {
	echo 'FAIL packages_abi: a function that is gone is not seen'
	exit 1
}
