#!/bin/bash
# SPDX-License-Identifier: MIT
# A program works the same whichever compiler, linker and linker's mode made it of the object file or the archive: each form of
# allocation comes to the library, C++'s operators included, and the vCPU mode is the one that the default linker gives.
# Link-time optimization is the program's own.  What the toolchain cannot do with an empty program either is named as skipped.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "${CPUSLAB_BUILD:-$here/../build}" && pwd)
[ -z "${CPUSLAB_SANITIZE:-}" ] || { echo "skipped: a sanitizer build"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export LC_ALL=C
unset CPUSLAB_OPTIONS GLIBC_TUNABLES LD_PRELOAD
echo 'int main(void) { return 0; }' >empty.c
echo 'int main() { return 0; }' >empty.cc
passed=0 failed=0 skipped=0

# judge WHAT SAID: whether it said the vCPU mode that the first way to link gave.
judge() {
	if [ "$2" = "${expected:=$2}" ]; then
		passed=$((passed + 1))
	else
		echo "$1: '$2', but expected '$expected'"
		failed=1
	fi
}

# skip WHAT
skip() {
	echo "skipped: $*"
	skipped=$((skipped + 1))
}

# link FILE...: a program; $compiler, $options
link() {
	"$compiler" -O2 "${options[@]}" "$@" -o program -pthread >log 2>&1
}

# try WHAT FILE...: links these, the library among them, in this order, and runs the program.
try() {
	local what="$compiler ${options[*]} $1" said
	shift
	if link "$@"; then
		said=$(./program 2>&1) || said="$said (status $?)"
		judge "$what" "$said"
	elif link empty.o && ./program; then
		link "$@" || tail -n 5 log
		judge "$what" "does not link"
	else
		skip "$what"
	fi
}

# try_modes SOURCE: with the rest of the options as they are.
try_modes() {
	local lto linker mode
	for lto in -fno-lto -flto; do
		"$compiler" -O2 -Wall $lto -fPIE -I"$here/../include" -c "$here/links/$1" -o program.o
		"$compiler" -O2 $lto -fPIE -c "empty.${1##*.}" -o empty.o
		for linker in "${linkers[@]}"; do
			# A clang's link-time optimization is for the lld of its own version.
			[ "$linker" != lld ] || ! command -v "ld.lld-${compiler##*-}" >/dev/null || linker=lld-${compiler##*-}
			for mode in -pie -no-pie -static -static-pie; do
				options=("$lto" "-fuse-ld=$linker" "$mode")
				try object "$build/cpuslab.o" program.o
				try archive program.o "$build/libcpuslab.a"
			done
		done
	done
}

linkers=()
for linker in bfd gold lld mold; do
	if command -v "ld.$linker" >/dev/null; then linkers+=("$linker"); else skip "no $linker"; fi
done
clang=$(compgen -c clang++ | grep -xE 'clang\+\+(-[0-9]+)?' | sort -V | tail -n 1)
for compiler in g++ "${clang:-clang++}"; do
	if command -v "$compiler" >/dev/null; then try_modes program.cc; else skip "no $compiler"; fi
done
compiler=gcc
try_modes plain.c

# A plugin of a program on libc's malloc, and the same file preloaded.
ask='import ctypes, sys; name = ctypes.CDLL(sys.argv[1]).cpuslab_vcpu_mode_name; name.restype = ctypes.c_char_p; print(name().decode())'
for linker in "${linkers[@]}"; do
	gcc -shared -fuse-ld="$linker" -Wl,-z,nodelete "$build/cpuslab.o" -o plugin.so -pthread
	judge "plugin by $linker" "$(python3 -c "$ask" ./plugin.so 2>&1)"
	judge "preloaded, by $linker" "$(LD_PRELOAD=$folder/plugin.so python3 -c "$ask" ./plugin.so 2>&1)"
done

# The library's own objects are machine code, though the build's flags ask for link-time optimization.
CFLAGS=-flto CXXFLAGS=-flto cmake -S "$here/.." -B flto -G Ninja -DCMAKE_INTERPROCEDURAL_OPTIMIZATION=ON >log
object=CMakeFiles/cpuslab_objects.dir/src/arch/arch.c.o
ninja -C flto $object >log || cat log
readelf -SW flto/$object >sections
if grep -q '\.text' sections && ! grep -q '\.gnu\.lto_' sections; then
	passed=$((passed + 1))
else
	echo "-flto: the library's objects are not for every linker"
	failed=1
fi
echo "$passed ways to link, $skipped skipped; vCPU mode ${expected:-unknown}"
[ "$passed" -gt 0 ] && exit $failed
