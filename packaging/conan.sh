#!/bin/bash
# The Conan recipe, by the real Conan of the Python registry: the archive and the shared library, each used by somebody's project.
. "$(dirname "$0")/roots.sh"
needs python3 cmake

python3 -m venv "$work/conan"
"$work/conan/bin/pip" install -q conan 2>"$work/log" || skip "no index: $(tail -n 1 "$work/log")"
copied "$work/tree"
export CONAN_HOME=$work/home
quietly "$work/conan/bin/conan" profile detect
for shared in False True; do
	quietly "$work/conan/bin/conan" create "$work/tree/packaging/conan" -o "&:shared=$shared"
	grep -q 'serves malloc' "$work/log" && grep -q 'kept the others out' "$work/log" || fail "$(tail -n 40 "$work/log")"
	echo "conan, shared=$shared: $(grep -o 'cpuslab [0-9.]* serves malloc' "$work/log" | tail -n 1)"
done
