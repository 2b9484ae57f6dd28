#!/bin/bash
# The library in somebody's CMake project, fetched from a Git repository, with no C++ compiler; and what a configuration says
# that cannot work.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset "${!CPUSLAB_@}" CXX

fail() {
	echo "FAIL packages_cmake: $*" >&2
	exit 1
}

# refused SAYING OPTION...
refused() {
	! cmake -S "$here" -B "$work/refused" -DCMAKE_TRY_COMPILE_TARGET_TYPE=STATIC_LIBRARY "${@:2}" >"$work/log" 2>&1 || fail "configured with ${*:2}"
	# CMake breaks lines.
	tr -s ' \n' '  ' <"$work/log" | grep -qF "$1" || fail "with ${*:2}: $(cat "$work/log")"
	echo "refused: $1"
	rm -rf "$work/refused"
}
refused '64-bit Linux alone; this build is for Windows' -DCMAKE_SYSTEM_NAME=Windows
refused '64-bit Linux alone; this build is for Darwin' -DCMAKE_SYSTEM_NAME=Darwin
[ "$(uname -m)" != x86_64 ] ||
	refused '64-bit Linux alone; this compiler makes code whose pointers have 4 bytes' -DCMAKE_C_FLAGS=-m32
refused 'needs CPUSLAB_BUILD_TOOLS and a C++ compiler' -DCPUSLAB_BUILD_TESTS=ON -DCPUSLAB_BUILD_TOOLS=OFF

# shellcheck source=tests/packages/repository.sh
. "$here/tests/packages/repository.sh"
repository "$here" "$work/repository"
export CXX=/no/compiler
cmake -S "$here/tests/packages/cmake" -B "$work/build" -G Ninja "-DOUTSIDE_GIT=file://$work/repository" >"$work/log" 2>&1 &&
	cmake --build "$work/build" >>"$work/log" 2>&1 || fail "$(tail -n 30 "$work/log")"
! grep -q 'CMAKE_CXX_COMPILER:FILEPATH=/' "$work/build/CMakeCache.txt" || fail 'there was a C++ compiler'
for library in cpuslab static; do
	said=$("$work/build/program_$library") || fail "program_$library: status $?"
	[[ $said = *'serves malloc' ]] || fail "program_$library: $said"
	echo "cpuslab::$library: $said"
done
echo "cpuslab::caches: $("$work/build/program_caches" libc.so)"
echo "cpuslab::locks: $("$work/build/program_locks")"
# Nothing but the library, and nothing of it is installed with the project.
! find "$work/build" -name 'libcpuslab-[fpuv]*' -o -name cpuslab -type f | grep . || fail 'tools and benchmarks are built as well'
DESTDIR=$work/stage cmake --install "$work/build" >/dev/null
[ ! -e "$work/stage" ] || fail "installed with the project: $(find "$work/stage" -type f | head -n 5)"
if command -v g++ >/dev/null; then
	# Nothrow new is then the runtime's, whose memory is the library's.
	g++ -O1 -fno-builtin "-I$here/include" -o "$work/operators" "$here/tests/packages/nothrow.cc" "$(find "$work/build" -name libcpuslab.a)" -pthread
	"$work/operators" || fail 'nothrow new of a library without it'
fi
