#!/bin/bash
# SPDX-License-Identifier: MIT
# Another library stands before libc's functions, those that the allocator takes from libc among them
# (scripts/lint/imported-symbols): each of its own allocates, looks a symbol up and takes a lock, and calls libc's.  Preloaded
# before and after ours, a program that comes through most slow paths runs to its end, in each vCPU mode and under each option
# that makes the library do more; and the allocator calls none of the functions but those with a reason.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "${CPUSLAB_BUILD:-$here/../build}" && pwd)
skip() {
	echo "skipped: $*"
	exit 77
}
[ "$(uname -m)" = x86_64 ] || skip "not x86-64"
[ -z "${CPUSLAB_SANITIZE:-}" ] || skip "a sanitizer build"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
unset CPUSLAB_OPTIONS CPUSLAB_DEBUG LD_PRELOAD
cc -D_GNU_SOURCE -O1 -fno-builtin -shared -fPIC -o shim.so "$here/interposed/shim.c"
cc -D_GNU_SOURCE -O1 -fno-builtin -o program "$here/interposed/program.c" -pthread
LD_PRELOAD=$folder/shim.so ./program >said || skip "the shim does not work here: $(tail -n 1 said)"
failed=0

# The shim's own names are all that the library imports.
while read -r name; do
	grep -q "^NAME($name)$" "$here/interposed/names.h" || {
		echo "tests/interposed/names.h lacks $name"
		failed=1
	}
done < <(nm -D --undefined-only "$build/libcpuslab.so" | awk '$1 == "U" { print $2 }' | sed 's/@.*//' |
	grep -vxE '__environ|environ|__progname|program_invocation_short_name|__libc_single_threaded|__libc_stack_end|__rseq_(size|offset)')

# try ENVIRONMENT...
try() {
	local order
	for order in "$folder/shim.so $build/libcpuslab.so" "$build/libcpuslab.so $folder/shim.so"; do
		rm -f log
		if ! env "$@" "SHIM_LOG=$folder/log" "LD_PRELOAD=$order" timeout 300 ./program >said 2>&1 || ! grep -qx ok said; then
			echo "$* with $order:"
			tail -n 3 said
			failed=1
		fi
		sort -u log >>called
	done
}
try CPUSLAB_OPTIONS=
for option in vcpu:cpu_id vcpu:slot hardened:1 guard:20 profile:64K,profile_at_exit:1 decay:0 reserve:0 \
	stats_at_exit:true,slabinfo_at_exit:true,leaks_at_exit:true; do
	try "CPUSLAB_OPTIONS=$option"
done
try GLIBC_TUNABLES=glibc.pthread.rseq=0

sed 's/!$//' called | sort -u >names
[ -s names ] || {
	echo "no call was seen"
	failed=1
}
while read -r name; do
	grep -q "^$name " "$here/../scripts/lint/imported-symbols" || {
		echo "called without a reason: $name"
		failed=1
	}
done <names
tr '\n' ' ' <names
exit $failed
