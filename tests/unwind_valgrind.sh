#!/bin/sh
# SPDX-License-Identifier: MIT
# valgrind reads the library's unwind information without a word: it warns at each entry that it does not understand,
# and then has no stacks through it.  (That the entries are right, too, malloc_unwind shows.)
set -eu

# shellcheck source=shared/as_shipped.sh
. "$(dirname "$0")/shared/as_shipped.sh"
needs valgrind readelf

# The entries are there at all: the program counter of an abort handler's caller is the value of an expression.
entries=$(readelf --debug-dump=frames "$library" 2>/dev/null | grep -c 'DW_CFA_val_expression: r16')
[ "$entries" -ge 10 ] || { echo "only $entries entries for abort handlers" >&2; exit 1; }
said=$(LD_PRELOAD=$library valgrind /bin/true 2>&1) || { echo "$said"; exit 1; }
warnings=$(echo "$said" | grep -c 'Warning' || true)
echo "$entries entries for abort handlers, $warnings warnings of valgrind's"
[ "$warnings" = 0 ] || { echo "$said" | grep 'Warning' | sort | uniq -c >&2; exit 1; }
