#!/bin/sh
# SPDX-License-Identifier: MIT
# Without CPUSLAB_KMEM_RCU whatever needs liburcu does not compile, and the compiler says what is missing; all else
# of <linux/slab.h> compiles.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# compiles COMPILER LANGUAGE TEXT: what the compiler says is in $work/said.
compiles() {
	printf '#include <linux/slab.h>\nstruct rcu_head { int unused; };\nstruct s { struct rcu_head rcu; };\n%s\n' "$3" |
		"$1" -x "$2" -I"$here/../include" -I"$here/../include/kernel" -c -o "$work/object" - >"$work/said" 2>&1
}

refuses() {
	if compiles "$@"; then
		echo "$1 compiles: $3" >&2
		exit 1
	fi
	grep -q 'need liburcu: define CPUSLAB_KMEM_RCU' "$work/said" || {
		echo "$1 does not say what is missing from: $3" >&2
		cat "$work/said" >&2
		exit 1
	}
}

for compiler in gcc g++ "$("$here/../scripts/clang" clang)" "$("$here/../scripts/clang" clang++)"; do
	command -v "$compiler" >/dev/null || continue
	language=c
	[ "${compiler%++*}" = "$compiler" ] || language=c++
	compiles "$compiler" $language 'void f(struct s *p) { kfree(p); }' || {
		cat "$work/said" >&2
		exit 1
	}
	refuses "$compiler" $language 'void f(struct s *p) { kfree_rcu(p, rcu); }'
	refuses "$compiler" $language 'void f(struct s *p) { kfree_rcu(p); }'
	refuses "$compiler" $language 'void f(struct s *p) { kvfree_rcu_mightsleep(p); }'
	refuses "$compiler" $language 'void f(void) { kvfree_rcu_barrier(); }'
	refuses "$compiler" $language 'void f(struct kmem_cache *c) { kvfree_rcu_barrier_on_cache(c); }'
	refuses "$compiler" $language 'struct kmem_cache *f(void) { return KMEM_CACHE(s, SLAB_TYPESAFE_BY_RCU); }'
	if compiles "$compiler" $language '#include <linux/rcupdate.h>'; then
		echo "$compiler takes linux/rcupdate.h" >&2
		exit 1
	fi
done
