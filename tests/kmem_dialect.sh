#!/bin/sh
# SPDX-License-Identifier: MIT
# Kernel code (tests/kernel) compiles as the kernel is built, in gnu11 and with -Wall -Wextra, by both compilers
# and with any optimization, and runs; and what is to be refused while it is compiled, is.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
liburcu=
! printf '#include <urcu.h>\n' | gcc -E - >/dev/null 2>&1 || liburcu=-DCPUSLAB_KMEM_RCU

fail() {
	echo "FAIL kmem_dialect: $*" >&2
	exit 1
}

# compiles COMPILER FLAG TEXT: what the compiler says is in $work/said.
compiles() {
	printf '#include <linux/bug.h>\n#include <linux/kernel.h>\n#include <linux/spinlock.h>\nstatic __maybe_unused DEFINE_SPINLOCK(lock);\nint f(int x) { %s; return x; }\n' "$3" |
		"$1" -std=gnu11 "$2" -Wall -Wextra -Werror -I"$here/../include" -I"$here/../include/kernel" \
			-x c -c -o "$work/object" - >"$work/said" 2>&1
}

clang=$("$here/../scripts/clang" clang) || clang=''
for compiler in gcc "$clang"; do
	command -v "$compiler" >/dev/null || continue
	for optimized in -O0 -O2; do
		for source in "$here"/kernel/*.c; do
			with=
			[ "$source" != "$here/kernel/radix_tree.c" ] || with=$liburcu
			[ "$source" != "$here/kernel/radix_tree.c" ] || [ -n "$liburcu" ] || continue
			# shellcheck disable=SC2086
			$compiler -std=gnu11 $optimized -Wall -Wextra -Werror $with -I"$here/../include" -I"$here/../include/kernel" \
				-c -o "$work/$(basename "$source").o" "$source" || fail "$compiler $optimized $source"
		done
		rm -f "$work/radix_tree.c.o"
		# Of a sanitized library the sanitizer's own is missing here.
		[ -z "${CPUSLAB_SANITIZE:-}" ] || continue
		$compiler -std=gnu11 $optimized -D_GNU_SOURCE -DCPUSLAB_VERSION='""' -I"$here" -I"$here/../include" \
			-I"$here/../include/kernel" -o "$work/modules" "$here/kmem_modules.c" "$work"/*.c.o \
			-L"$CPUSLAB_BUILD" -lcpuslab -pthread || fail "$compiler $optimized kmem_modules.c"
		LD_LIBRARY_PATH=$CPUSLAB_BUILD "$work/modules" || fail "$compiler $optimized: the modules end with $?"

		compiles $compiler $optimized 'if (x) BUILD_BUG_ON(sizeof(x) != 4)' || fail "$compiler: $(cat "$work/said")"
		for wrong in 'BUILD_BUG_ON(sizeof(x) == 4)' 'static_assert(sizeof(x) == 5)' 'static_assert(0, "text")'; do
			! compiles $compiler $optimized "$wrong" || fail "$compiler $optimized takes $wrong"
		done
	done
	compiles $compiler -O2 'BUILD_BUG_ON(!is_power_of_2(sizeof(x)))' || fail "$compiler: $(cat "$work/said")"
	compiles $compiler -O2 'scoped_guard(spinlock, &lock) return x; } int g(int x) { guard(spinlock)(&lock)' ||
		fail "$compiler does not see that a guarded return is one: $(cat "$work/said")"
	! compiles $compiler -O2 'scoped_guard(spinlock, &lock) x++; } int g(int x) { x++' ||
		fail "$compiler sees a return that is not there"
	! compiles $compiler -O2 'BUILD_BUG_ON(is_power_of_2(sizeof(x)))' || fail "$compiler sees no power of two"
done

# On a machine where a read-modify-write is several instructions, one that returns a value has a barrier on each
# side.  The C library's headers for this machine serve, but for one that names the other's functions.
mkdir -p "$work/headers/gnu"
: >"$work/headers/gnu/stubs-32.h"
for_arm64() {
	[ -n "$clang" ] &&
		printf '#include <linux/atomic.h>\nint f(atomic_t *v) { return atomic_inc_return(v); }\n' |
		"$clang" -target aarch64-linux-gnu -O2 -isystem "$work/headers" -isystem "/usr/include/$(gcc -print-multiarch)" \
			-I"$here/../include" -I"$here/../include/kernel" -S -o "$work/arm64.s" -x c - >"$work/said" 2>&1
}
if for_arm64; then
	[ "$(grep -cw dmb "$work/arm64.s")" -eq 2 ] || fail "atomic_inc_return() on arm64: $(cat "$work/arm64.s")"
else
	echo "not shown: arm64's barriers, for which there is no clang with these headers: $(head -n 3 "$work/said")"
fi
