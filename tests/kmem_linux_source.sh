#!/bin/bash
# SPDX-License-Identifier: MIT
# Files of a kernel compile unchanged with include/kernel and run: lib/btree.c and lib/assoc_array.c, each driven by a
# program of tests/linux_source, and lib/test_meminit.c, which finds all memory zeroed in hardened mode.
#
# The kernel's source is never part of this tree: it is taken from LINUX_SOURCE (an unpacked one), from Debian's package
# linux-source where that is installed, or downloaded with apt-get.  Where none of this works, 77.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

skip() {
	echo "skipped: $*"
	exit 77
}

fail() {
	echo "FAIL kmem_linux_source: $*" >&2
	exit 1
}

printf '#include <urcu.h>\n' | gcc -E - >/dev/null 2>&1 || skip "no liburcu here"
files=(lib/btree.c lib/assoc_array.c lib/test_meminit.c include/linux/btree.h include/linux/btree-128.h
	include/linux/btree-type.h include/linux/assoc_array.h include/linux/assoc_array_priv.h)

# Prints a compressed archive of the source.
archive() {
	local installed package
	for installed in /usr/src/linux-source-*.tar.xz; do
		[ -f "$installed" ] && cat "$installed" && return
	done
	package=$(apt-cache depends linux-source 2>/dev/null | awk '$1 == "Depends:" { print $2; exit }')
	[ -n "$package" ] && (cd "$work" && timeout 300 apt-get -q download "$package") >/dev/null 2>&1 || return 1
	dpkg-deb --fsys-tarfile "$work"/linux-source-*.deb | tar -xO --wildcards './usr/src/linux-source-*.tar.xz'
}

source=${LINUX_SOURCE:-}
if [ -z "$source" ]; then
	archive >"$work/source.tar.xz" || skip "no linux-source to be had"
	mkdir "$work/source"
	tar -xJf "$work/source.tar.xz" -C "$work/source" --strip-components=1 --wildcards "${files[@]/#/*/}" ||
		fail "the archive lacks some of ${files[*]}"
	source=$work/source
fi

# Its headers that include/kernel does not have.
mkdir -p "$work/include/linux"
cp "$source"/include/linux/{btree,assoc_array}*.h "$work/include/linux"
compile=(gcc -std=gnu11 -O2 -Wall -fno-strict-aliasing -DCPUSLAB_KMEM_RCU -DCONFIG_ASSOCIATIVE_ARRAY
	-I"$here/../include" -I"$here/../include/kernel" -I"$work/include")

# build NAME: the kernel's file as the kernel is built, and the program that drives it.
build() {
	"${compile[@]}" -DKBUILD_MODNAME="\"$1\"" "-Dmodule_init(function)=int run_$1(void); int run_$1(void) { return function(); }" \
		"-Dmodule_exit(function)=void end_$1(void); void end_$1(void) { function(); }" \
		-c -o "$work/$1.o" "$source/lib/$1.c" || fail "lib/$1.c does not compile"
	"${compile[@]}" -o "$work/$1" "$here/linux_source/$1.c" "$work/$1.o" -L"$CPUSLAB_BUILD" -lcpuslab \
		-Wl,-rpath,"$CPUSLAB_BUILD" -lurcu -lurcu-common -pthread || fail "lib/$1.c does not link"
}

for name in btree assoc_array test_meminit; do
	build $name
done
for options in '' hardened:1 vcpu:slot; do
	for name in btree assoc_array; do
		CPUSLAB_OPTIONS=$options timeout 100 "$work/$name" || fail "$name with '$options' ends with $?"
	done
done
CPUSLAB_OPTIONS=hardened:1 timeout 100 "$work/test_meminit" 2>"$work/said" || fail "test_meminit: $(cat "$work/said")"
grep -q 'all [0-9]* tests passed' "$work/said" || fail "test_meminit: $(cat "$work/said")"
