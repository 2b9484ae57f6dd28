#!/bin/bash
# Caches in programs whose memory is watched: AddressSanitizer reports a use of an object after its free,
# ThreadSanitizer a race on one, MemorySanitizer and memcheck the use of what was not initialised; and a program
# without errors has none to report.  Once with each compiler that has the sanitizer.
set -eu
: "${CPUSLAB_BUILD:=$(cd "$(dirname "$0")/.." && pwd)/build}"
source=$(cd "$(dirname "$0")/.." && pwd)
if [ -n "${CPUSLAB_SANITIZE:-}" ]; then
	echo "skipped: the library itself is built with a sanitizer"
	exit 77
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export LD_LIBRARY_PATH=$CPUSLAB_BUILD
export TSAN_OPTIONS=exitcode=66 ASAN_OPTIONS=detect_leaks=0
tools=0

fail() {
	echo "FAILED: $*" >&2
	cat "$scratch/said" >&2
	exit 1
}

# silent COMMAND...: the program without an error.
silent() {
	"$@" none >"$scratch/said" 2>&1 || fail "$* reports what is no error"
	grep -qx 'all is well' "$scratch/said" || fail "$* does not end"
}

# reports ERROR TEXT COMMAND...
reports() {
	local error=$1 text=$2
	shift 2
	if "$@" "$error" >"$scratch/said" 2>&1; then
		fail "$* $error is not found"
	fi
	grep -q "$text" "$scratch/said" || fail "$* $error is not reported as $text"
}

# build COMPILER SANITIZER: false where there is none.
build() {
	command -v "$1" >/dev/null 2>&1 || return 1
	echo 'int main(void) { return 0; }' >"$scratch/empty.c"
	"$1" "-fsanitize=$2" "$scratch/empty.c" -o "$scratch/empty" 2>/dev/null && "$scratch/empty" || return 1
	"$1" -O1 -g -fno-builtin "-fsanitize=$2" -I"$source/include" "$source/tests/sanitized/caches.c" \
		-o "$scratch/$2" -L"$CPUSLAB_BUILD" -lcpuslab -pthread
	tools=$((tools + 1))
}

for compiler in gcc "$("$source/scripts/clang" clang)"; do
	if build "$compiler" address; then
		silent "$scratch/address"
		reports use-after-free 'use-after-poison' "$scratch/address"
	fi
	if build "$compiler" thread; then
		silent "$scratch/thread"
		reports race 'data race' "$scratch/thread"
	fi
	if build "$compiler" memory; then
		silent "$scratch/memory"
		reports uninitialised 'use-of-uninitialized-value' "$scratch/memory"
	fi
done

# Valgrind 3.19 gives up on what clang 16 writes for debuggers.
can_read() {
	! valgrind "$1" none 2>&1 | grep -q 'debuginfo reader'
}

if command -v valgrind >/dev/null 2>&1; then
	gcc -O1 -g -fno-builtin -I"$source/include" "$source/tests/sanitized/caches.c" -o "$scratch/plain" \
		-L"$CPUSLAB_BUILD" -lcpuslab -pthread
	# Memcheck takes seconds to note a terabyte.
	export CPUSLAB_OPTIONS=reserve:1G
	if can_read "$scratch/plain"; then
		tools=$((tools + 1))
		silent valgrind --error-exitcode=99 "$scratch/plain"
		reports use-after-free "inside a block of size 104 free'd" \
			valgrind --error-exitcode=99 "$scratch/plain"
		reports uninitialised 'depends on uninitialised value' \
			valgrind --error-exitcode=99 "$scratch/plain"
	fi
fi

[ $tools -gt 0 ] || {
	echo "skipped: no sanitizer and no valgrind on this machine"
	exit 77
}
echo "$tools tools"
