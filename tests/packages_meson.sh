#!/bin/bash
# The library in somebody's Meson project, by the wrap file of packaging/, from a Git repository.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
command -v meson >/dev/null || {
	echo 'no meson on this machine'
	exit 77
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
	echo "FAIL packages_meson: $*" >&2
	exit 1
}

# shellcheck source=tests/packages/repository.sh
. "$here/tests/packages/repository.sh"
repository "$here" "$work/repository"
mkdir -p "$work/outside/subprojects" "$work/install"
cp "$here/tests/install/program.c" "$work/install/"
sed 's|../../install|../install|' "$here/tests/packages/meson/meson.build" >"$work/outside/meson.build"
# A public host's address and tag in the wrap become this repository's.
sed "s|^url = .*|url = file://$work/repository|; s|^revision = .*|revision = main|" "$here/packaging/meson/cpuslab.wrap" \
	>"$work/outside/subprojects/cpuslab.wrap"
meson setup "$work/build" "$work/outside" >"$work/log" 2>&1 && meson compile -C "$work/build" >>"$work/log" 2>&1 ||
	fail "$(tail -n 30 "$work/log")"
for way in shared static; do
	said=$("$work/build/program_$way") || fail "program_$way: status $?: $said"
	[[ $said = *'serves malloc' ]] || fail "program_$way: $said"
	echo "wrap, $way: $said"
done
grep -q "^project('cpuslab', 'c', version: '$(sed -n 's/^project(cpuslab VERSION \([0-9.]*\).*/\1/p' "$here/CMakeLists.txt")'" "$here/meson.build" ||
	fail 'meson.build has another version than CMakeLists.txt'
diff <(LC_ALL=C nm -D --defined-only "$work/build/subprojects/cpuslab/libcpuslab.so" | awk '{ print $3 }' | sort) \
	<(grep -vE '^_Zn[wa].*nothrow_t$' "$here/scripts/lint/exported-symbols" | LC_ALL=C sort) || fail 'the library exports other names'
