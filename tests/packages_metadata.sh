#!/bin/bash
# What each package says of the library is true: its version everywhere, its exported names in debian/, and the Python module's
# own tests against this build.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
build=${CPUSLAB_BUILD:?}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
	echo "FAIL packages_metadata: $*" >&2
	exit 1
}

cd "$here"
version=$(sed -n 's/^project(cpuslab VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
# said FILE EXPRESSION: the version that sed finds there.
said() {
	local found
	found=$(sed -nE "s/$2/\\1/p" "$1" | head -n 1)
	[ "$found" = "$version" ] || fail "$1 has version '$found', CMakeLists.txt $version"
}
said meson.build "^project\('cpuslab', 'c', version: '([^']*)'.*"
said MODULE.bazel '^module\(.*version = "([^"]*)".*'
said BUILD.bazel '.*CPUSLAB_VERSION=[^0-9]*([0-9.]*[0-9])[^0-9]*$'
said packaging/vcpkg/ports/cpuslab/vcpkg.json '^ *"version": "([^"]*)".*'
said bindings/rust/Cargo.toml '^version = "([^"]*)"'
said bindings/rust/sys/Cargo.toml '^version = "([^"]*)"'
said bindings/python/pyproject.toml '^version = "([^"]*)"'
said bindings/python/cpuslab/__init__.py '^__version__ = "([^"]*)"'
said debian/changelog '^cpuslab \(([^)]*)\).*'
said CHANGELOG.md '^## ([0-9.]+).*'
diff <(sed -n 's/^ \([^@]*\)@.*/\1/p' debian/libcpuslab0.symbols | LC_ALL=C sort) scripts/lint/exported-symbols ||
	fail 'debian/libcpuslab0.symbols and what the library exports'
for name in $(sed -n 's/^set(CPUSLAB_SHARED_SOURCES \(.*\)).*/\1/p' CMakeLists.txt); do
	for file in meson.build BUILD.bazel bindings/rust/sys/build.rs; do
		grep -qF "${name##*/}" $file || fail "$file does not know that $name is of the shared library alone"
	done
done
python3 -m json.tool packaging/vcpkg/ports/cpuslab/vcpkg.json >/dev/null || fail vcpkg.json

if [ -z "${CPUSLAB_SANITIZE:-}" ] && command -v python3 >/dev/null; then
	cp -r bindings/python/cpuslab "$work/"
	cp "$build/libcpuslab.so.${version%%.*}" "$work/cpuslab/"
	export PYTHONPATH=$work PYTHONDONTWRITEBYTECODE=1
	python3 bindings/python/tests/test_cpuslab.py >"$work/log" 2>&1 || fail "$(cat "$work/log")"
	python3 -m cpuslab run bindings/python/tests/test_cpuslab.py >"$work/log" 2>&1 || fail "$(cat "$work/log")"
fi
