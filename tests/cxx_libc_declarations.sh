#!/bin/sh
# <cpuslab/cpuslab.h> in C++ beside a C library that declares what ours declares as well: glibc does free_sized and
# free_aligned_sized from 2.43 on.  Whichever header comes first, and in each C++; the library's folder here is no system's,
# of which compilers would overlook more.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/stdlib.h" <<'END'
#include_next <stdlib.h>
#pragma once
#ifndef __THROW
#define __THROW
#endif
__BEGIN_DECLS
extern void free_sized(void *pointer, size_t size) __THROW;
extern void free_aligned_sized(void *pointer, size_t alignment, size_t size) __THROW;
__END_DECLS
END

failed=0
# agree COMPILER STANDARD: both orders, and with what the C++ library includes.
agree() {
	for first in '' stdlib.h cstdlib new; do
		for last in stdlib.h cstdlib vector; do
			{
				[ -z "$first" ] || echo "#include <$first>"
				printf '#include <cpuslab/cpuslab.h>\n#include <%s>\n' $last
				echo 'void f(void *p); void f(void *p) { free_sized(p, 1); free_aligned_sized(p, 8, 8); }'
			} | "$1" -x c++ "-std=$2" -I"$root/include" -I"$work" -Wall -Wextra -Werror -fsyntax-only - || {
				echo "$1 -std=$2: <$first>, ours, <$last>" >&2
				failed=1
			}
		done
	done
}

for compiler in g++ "$("$root/scripts/clang" clang++)"; do
	command -v "$compiler" >/dev/null || continue
	for standard in gnu++98 c++11 gnu++17 gnu++20; do
		agree "$compiler" $standard
	done
done
exit $failed
