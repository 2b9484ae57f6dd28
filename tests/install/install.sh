#!/bin/bash
# install.sh BUILD: `make install` into a folder of its own, then every documented way to build against what it
# left there; each program shows that its malloc is the library's.
set -eu
cd "$(dirname "$0")/../.."
build=${1:-build}
here=$PWD/tests/install
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
stage=$work/stage
prefix=/opt/cpuslab

fail() {
	echo "FAIL install: $*" >&2
	exit 1
}

# As somebody whose own files are private; what is installed is for all.
(umask 077 && make -s install BUILD="$build" DESTDIR="$stage" PREFIX=$prefix) >"$work/log" 2>&1 || fail "$(cat "$work/log")"
hidden=$(find "$stage/opt" ! -perm -o=r -o -type d ! -perm -o=x)
[ -z "$hidden" ] || fail "not for everybody: $hidden"
hollow=$(find "$stage" -type d -empty)
[ -z "$hollow" ] || fail "folders with nothing in them: $hollow"
root=$stage$prefix
# Manual pages are where man looks for them.
while read -r target; do
	[ -e "$root/share/doc/cpuslab/$target" ] || [ "$target" = docs/man/ ] || fail "the installed README.md: no $target"
done < <(grep -oE '\]\([^)#:]+[^):]*\)' "$root/share/doc/cpuslab/README.md" | sed 's/^](//; s/)$//; s/#.*//')
version=$(sed -n 's/^project(cpuslab VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
library=$(find "$root" -name "libcpuslab.so.$version")
libdir=$(dirname "$library")
for file in "$libdir/libcpuslab.so" "$libdir/libcpuslab.so.${version%%.*}" "$libdir/libcpuslab.a" \
	"$libdir/libcpuslab-caches.a" "$libdir/libcpuslab-locks.a" "$libdir/cpuslab/cpuslab.o" "$libdir/pkgconfig/cpuslab.pc" "$libdir/cmake/cpuslab/cpuslabConfig.cmake" \
	"$libdir/cmake/cpuslab/cpuslabConfigVersion.cmake" "$root/include/cpuslab/cpuslab.h" \
	"$root/include/cpuslab/kmem.h" "$root/include/cpuslab/kernel/linux/slab.h" \
	"$root/bin/cpuslab" "$root/share/doc/cpuslab/LICENSE" "$root/share/doc/cpuslab/README.md"; do
	[ -e "$file" ] || fail "${file#"$stage"} was not installed"
done
others=$(find "$root" -name '*.so*' ! -name 'libcpuslab.so*')
[ -z "$others" ] || fail "libraries of benchmarks alone: $others"
(umask 022 && cmake --install "$build" --component bench --prefix "$work/bench") >/dev/null
[ -n "$(find "$work/bench" -name 'libcpuslab-floor.so')" ] || fail 'the component bench has no libraries'
! grep -rlF "$stage" "$root" --include='*.pc' --include='*.cmake' || fail "the files above name DESTDIR"
grep -qx "prefix=$prefix" "$libdir/pkgconfig/cpuslab.pc" || fail "cpuslab.pc has another prefix"

# works NAME COMMAND...: the program prints one line when malloc is the library's.
works() {
	local way=$1 output
	shift
	output=$("$@" 2>&1) || fail "$way: status $?: $output"
	[ "$output" = "cpuslab $version serves malloc" ] || fail "$way: $output"
	echo "installed, by $way: $output"
}

export PKG_CONFIG_PATH=$libdir/pkgconfig PKG_CONFIG_SYSROOT_DIR=$stage
if command -v pkg-config >/dev/null 2>&1; then
	[ "$(pkg-config --modversion cpuslab)" = "$version" ] || fail "pkg-config gives another version"
	# pkg-config sets the sysroot before paths of flags, not before paths in variables.
	archive=$stage$(PKG_CONFIG_SYSROOT_DIR='' pkg-config --variable=archive cpuslab)
	object=$stage$(PKG_CONFIG_SYSROOT_DIR='' pkg-config --variable=object cpuslab)
	preload=$stage$(PKG_CONFIG_SYSROOT_DIR='' pkg-config --variable=preload cpuslab)
	# The flags are words.
	# shellcheck disable=SC2046
	{
		gcc -o "$work/shared" "$here/program.c" $(pkg-config --cflags --libs cpuslab)
		gcc -o "$work/archive" $(pkg-config --cflags cpuslab) "$here/program.c" "$archive" -pthread
		gcc -o "$work/object" $(pkg-config --cflags cpuslab) "$object" "$here/program.c" -pthread
		gcc -static -o "$work/static" $(pkg-config --cflags cpuslab) "$object" "$here/program.c" -pthread
		gcc -o "$work/caches" "$here/../packages/caches.c" $(pkg-config --cflags --libs cpuslab-caches)
		gcc -o "$work/locks" "$here/../packages/locks.c" $(pkg-config --cflags --libs cpuslab-locks)
		g++ -o "$work/cxx" $(pkg-config --cflags cpuslab) -x c++ "$here/program.c" -x none "$archive" -pthread
	}
	# Linkers that leave out what nothing refers to.
	for linker in bfd gold lld; do
		command -v ld.$linker >/dev/null || continue
		# shellcheck disable=SC2046
		gcc -fuse-ld=$linker -Wl,--gc-sections -o "$work/least" $(pkg-config --cflags cpuslab) "$object" "$here/program.c" \
			-pthread || fail "--gc-sections of $linker"
		works "pkg-config, object file with --gc-sections of $linker" "$work/least"
	done
	works 'pkg-config, shared' env LD_LIBRARY_PATH="$libdir" "$work/shared"
	works 'pkg-config, archive' "$work/archive"
	works 'pkg-config, object file first' "$work/object"
	works 'pkg-config, object file in a static program' "$work/static"
	works 'pkg-config, C++ with the archive' "$work/cxx"
	"$work/caches" libc.so && "$work/locks" || fail 'pkg-config, cpuslab-caches and cpuslab-locks'
	kernel=$stage$(PKG_CONFIG_SYSROOT_DIR='' pkg-config --variable=kernel cpuslab)
	# shellcheck disable=SC2046
	{
		gcc -o "$work/kernel" -I"$kernel" "$here/module.c" $(pkg-config --cflags --libs cpuslab)
		g++ -o "$work/kernel_cxx" -I"$kernel" -x c++ "$here/module.c" $(pkg-config --cflags --libs cpuslab)
	}
	works 'pkg-config, linux/slab.h' env LD_LIBRARY_PATH="$libdir" "$work/kernel"
	works 'pkg-config, linux/slab.h in C++' env LD_LIBRARY_PATH="$libdir" "$work/kernel_cxx"
	readelf -d "$work/shared" | grep -q "libcpuslab.so.${version%%.*}" || fail "the program does not need the SONAME"
	# No call of the library in the program: preload alone must do.
	LD_PRELOAD=$preload "$here/../../tests/install/mapped.sh" || fail "preload of $preload"
	echo "installed, by preload: mapped"
fi

for languages in C 'C;CXX'; do
	cmake -S "$here" -B "$work/consumer" -G Ninja -DCMAKE_PREFIX_PATH="$root" "-DCONSUMER_LANGUAGES=$languages" \
		>"$work/log" 2>&1 &&
		cmake --build "$work/consumer" >>"$work/log" 2>&1 || fail "find_package: $(cat "$work/log")"
	for way in shared static object; do
		works "find_package in $languages, $way" "$work/consumer/program_$way"
	done
	! readelf -d "$work/consumer/program_static" | grep 'libstdc++\|libgcc' ||
		fail "a C program of a project in $languages needs a library of C++"
	rm -rf "$work/consumer"
done

# The command finds the library that was installed with it, wherever the tree was put.
"$root/bin/cpuslab" version >"$work/version" 2>&1 || fail "cpuslab version: $(cat "$work/version")"
grep -qF "$version" "$work/version" || fail "cpuslab version: $(cat "$work/version")"
"$root/bin/cpuslab" run -- "$here/mapped.sh" || fail "cpuslab run does not preload the installed library"
echo "installed: the command"
