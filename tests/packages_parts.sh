#!/bin/bash
# The archives that replace no malloc: caches and locks beside glibc's malloc and jemalloc's, in a static program and in one
# under the library's own preload; the locks alone bring no allocator.
set -eu
build=${CPUSLAB_BUILD:?}
here=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
	echo "FAIL packages_parts: $*" >&2
	exit 1
}

[ -z "${CPUSLAB_SANITIZE:-}" ] || flags=-fsanitize=$CPUSLAB_SANITIZE
# built NAME SOURCE ARGUMENT...
built() {
	# shellcheck disable=SC2086
	gcc ${flags:-} -O2 -fno-builtin -Wall -Wextra -Werror "-I$here/include" -o "$work/$1" "$here/tests/packages/$2" "${@:3}" -pthread ||
		fail "$1 was not built"
}
# works NAME COMMAND...
works() {
	"${@:2}" >"$work/said" 2>&1 || fail "$1: status $?: $(cat "$work/said")"
	echo "$1: $(cat "$work/said")"
}

for archive in caches locks; do
	diff <(nm -g --defined-only "$build/libcpuslab-$archive.a" | awk 'NF == 3 { print $3 }' | LC_ALL=C sort) \
		<(LC_ALL=C sort "$here/cmake/$archive.list") || fail "libcpuslab-$archive.a has other names"
done
for mode in auto slot; do
	export CPUSLAB_OPTIONS=vcpu:$mode
	built caches caches.c "$build/libcpuslab-caches.a"
	works "caches beside glibc, $mode" "$work/caches" libc.so
	works "caches under the library's preload, $mode" env LD_PRELOAD="$build/libcpuslab.so" "$work/caches" libcpuslab.so
	if [ -z "${flags:-}" ]; then
		built caches_static caches.c "$build/libcpuslab-caches.a" -static
		works "caches in a static program, $mode" "$work/caches_static" caches_static
	fi
	if [ -e "$(gcc -print-file-name=libjemalloc.so)" ]; then
		built caches_jemalloc caches.c "$build/libcpuslab-caches.a" -ljemalloc
		works "caches beside jemalloc, $mode" "$work/caches_jemalloc" libjemalloc
	fi
done
built locks locks.c "$build/libcpuslab-locks.a"
works locks "$work/locks"
! nm "$work/locks" | grep -E ' (malloc|free|magazine_[a-z]*|page_init)$' || fail 'locks alone bring an allocator'
