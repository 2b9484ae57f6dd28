#!/bin/bash
# SPDX-License-Identifier: MIT
# A program that replaces some of the malloc family or of C++'s operators gets from the library what it would get from glibc
# and libstdc++: the functions that those make of others come to the program's own.  Each subset is tried: the C family's, and
# the operators' in four groups that do not depend on each other (new and delete, aligned or not), with malloc, free and
# aligned_alloc replaced or not.  Which of its own functions each call comes to, a program prints; it says the same as without
# the library.
#
# Preloaded: all subsets.  Linked with the shared library, the archive and the object file, also static: each function alone
# and some subsets; all of them with CPUSLAB_SOAK.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "${CPUSLAB_BUILD:-$here/../build}" && pwd)
[ -z "${CPUSLAB_SANITIZE:-}" ] || { echo "skipped: a sanitizer build"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
unset CPUSLAB_OPTIONS LD_PRELOAD
compile() {
	c++ -std=c++17 -O1 -fno-builtin -fPIC "$@"
}

family=(malloc free calloc realloc reallocarray aligned_alloc memalign posix_memalign)
news=(new new_array new_nothrow new_array_nothrow)
aligned_news=(new_aligned new_array_aligned new_aligned_nothrow new_array_aligned_nothrow)
deletes=(delete delete_array delete_nothrow delete_array_nothrow delete_sized delete_array_sized)
aligned_deletes=(delete_aligned delete_array_aligned delete_aligned_nothrow delete_array_aligned_nothrow
	delete_aligned_sized delete_array_aligned_sized)
all=("${family[@]}" "${news[@]}" "${aligned_news[@]}" "${deletes[@]}" "${aligned_deletes[@]}")
mkdir functions expected
for name in "${all[@]}"; do
	compile "-DREPLACE_$name" -c -o "functions/$name.o" "$here/replaced/functions.cc"
	cc -shared -o "functions/$name.so" "functions/$name.o"
done
compile -c -o program.o "$here/replaced/program.cc"
c++ -rdynamic -o plain program.o
tried=0 failed=0

# subsets NAME...: one a line.
subsets() {
	local bits i line
	for ((bits = 0; bits < 1 << $#; bits++)); do
		line=
		for ((i = 0; i < $#; i++)); do
			((bits >> i & 1)) && line+=" ${*:i+1:1}"
		done
		echo "${line# }"
	done
}

every_subset() {
	subsets "${family[@]}"
	{
		subsets "${news[@]}"
		subsets "${aligned_news[@]}"
		subsets "${deletes[@]}"
		subsets "${aligned_deletes[@]}"
	} | sed p | awk '{ print NR % 2 ? $0 : $0 " malloc free aligned_alloc" }'
}

some_subsets() {
	printf '%s\n' "" "${all[@]}" "${all[*]}" "${family[*]}" "malloc free calloc realloc" "new delete" "new delete new_array delete_array" \
		"malloc free new delete" "new delete new_aligned delete_aligned" "new_nothrow delete_sized"
}

# preloads NAME...: as LD_PRELOAD has them.
preloads() {
	[ $# -eq 0 ] || printf "$folder/functions/%s.so " "$@"
}

# expect SUBSET: where the lines are that it prints without the library.
expect() {
	local file
	file="expected/$(cksum <<<"$1" | tr ' ' -)"
	# shellcheck disable=SC2086 # a list of words
	[ -e "$file" ] || LD_PRELOAD=$(preloads $1) ./plain >"$file"
	echo "$file"
}

# judge WHAT SUBSET FILE: whether a run printed what it should have.
judge() {
	local expected
	expected=$(expect "$2")
	tried=$((tried + 1))
	if ! diff "$expected" "$3" >difference; then
		echo "$1, replaced: $2"
		sed -n '1,6p' difference
		failed=$((failed + 1))
	fi
}

run() {
	"$@" >said 2>&1 || echo "status $?" >>said
}

while read -r subset; do
	# shellcheck disable=SC2086
	run env LD_PRELOAD="$(preloads $subset)$build/libcpuslab.so" ./plain
	judge preloaded "$subset" said
done < <(every_subset)
echo "preloaded: $tried subsets"

# link HOW SUBSET
link() {
	local objects=() name
	# shellcheck disable=SC2086
	for name in $2; do
		objects+=("functions/$name.o")
	done
	case $1 in
	shared) c++ -o program program.o "${objects[@]}" "$build/libcpuslab.so" "-Wl,-rpath,$build" ;;
	archive) c++ -o program program.o "${objects[@]}" "$build/libcpuslab.a" -pthread ;;
	object) c++ -o program "$build/cpuslab.o" program.o "${objects[@]}" -pthread ;;
	static) c++ -static -o program program.o "${objects[@]}" "$build/libcpuslab.a" -pthread ;;
	esac >log 2>&1
}

while read -r subset; do
	for how in shared archive object static; do
		if link $how "$subset"; then
			run ./program
		else
			head -n 3 log >said
		fi
		judge $how "$subset" said
	done
done < <(if [ -n "${CPUSLAB_SOAK:-}" ]; then every_subset; else some_subsets; fi)
echo "$tried tried, $failed failed"
[ "$failed" -eq 0 ]
