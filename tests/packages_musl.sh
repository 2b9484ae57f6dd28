#!/bin/bash
# With musl: the library, the object, the archives and the command build; programs by each way to link; stress, forks and contracts
# in each vCPU mode.  Its restartable sequences the library registers itself.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset "${!CPUSLAB_@}"
command -v musl-gcc >/dev/null || {
	echo 'no musl-gcc on this machine'
	exit 77
}

fail() {
	echo "FAIL packages_musl: $*" >&2
	exit 1
}

# What Alpine has as linux-headers and bsd-compat-headers; of the rest of this machine's headers nothing.
system=/usr/include/$(uname -m)-linux-gnu
mkdir -p "$work/headers/sys"
ln -s /usr/include/linux /usr/include/asm-generic "$system/asm" "$work/headers/"
ln -s "$system/sys/queue.h" "$work/headers/sys/"
CC=musl-gcc cmake -S "$here" -B "$work/build" -G Ninja -DCMAKE_CXX_COMPILER=NOTFOUND "-DCMAKE_C_FLAGS=-isystem $work/headers" \
	-DCMAKE_FIND_ROOT_PATH=/usr/lib/musl -DCMAKE_FIND_ROOT_PATH_MODE_INCLUDE=ONLY >"$work/log" 2>&1 &&
	cmake --build "$work/build" --target libcpuslab.so cpuslab_static cpuslab_object cpuslab_caches cpuslab_locks cpuslab_command >"$work/log" 2>&1 ||
	fail "$(tail -n 30 "$work/log")"
build=$work/build

# built NAME SOURCE ARGUMENT...
built() {
	musl-gcc -O2 -w -Werror=implicit-function-declaration -fno-builtin -D_GNU_SOURCE '-DCPUSLAB_VERSION="0"' -isystem "$work/headers" "-I$here/tests" "-I$here/include" \
		-o "$work/$1" "$here/tests/$2" "${@:3}" >"$work/log" 2>&1 || fail "$1: $(cat "$work/log")"
}
# works COMMAND...
works() {
	timeout -s KILL 120 "$@" >"$work/log" 2>&1 </dev/null || fail "$*: status $?: $(tail -n 20 "$work/log")"
}

program=$here/tests/install/program.c
musl-gcc -I"$here/include" -o "$work/shared" "$program" -L"$build" -lcpuslab
works env LD_LIBRARY_PATH="$build" "$work/shared"
musl-gcc -static -I"$here/include" -o "$work/static" "$build/cpuslab.o" "$program"
works "$work/static"
musl-gcc -static -I"$here/include" -o "$work/archive" "$program" "$build/libcpuslab.a"
works "$work/archive"
built locks packages/locks.c "$build/libcpuslab-locks.a"
works "$work/locks"
built plain malloc_burst.c
works "$build/cpuslab" run -- "$work/plain" small
works env LD_PRELOAD="$build/libcpuslab.so.0" CPUSLAB_OPTIONS=stats_at_exit:true "$work/plain" small
grep -q '^cpuslab 0.*vCPU mode' "$work/log" || fail "preload: $(cat "$work/log")"
echo "musl: $(grep -o 'vCPU mode [a-z_]*' "$work/log")"

for test in malloc_stress fork_load cache_contract kmem_contract; do
	kernel=()
	[ $test != kmem_contract ] || kernel=("-I$here/include/kernel")
	built $test $test.c "$build/cpuslab.o" "${kernel[@]}"
done
for mode in auto slot; do
	export CPUSLAB_OPTIONS=vcpu:$mode
	for arguments in 'malloc_stress plain' 'malloc_stress churn' 'fork_load fork' 'cache_contract magazine' kmem_contract; do
		# shellcheck disable=SC2086
		works "$work/"$arguments
	done
done
