#!/bin/bash
# Somebody's Bazel workspace, which has the library among a program's deps.  By Debian's Bazel, which is older than modules: its
# rules for C are those built into it, where a newer one takes those of MODULE.bazel from its registry.
. "$(dirname "$0")/roots.sh"
needs bazel
rules=/usr/share/bazel/rules
[ -e $rules/java ] && [ -e $rules/proto ] || skip 'no rules for bazel: bazel-rules-java bazel-rules-proto'

copied "$work/cpuslab"
mkdir -p "$work/outside" "$work/rules_cc/cc"
touch "$work/cpuslab/WORKSPACE" "$work/rules_cc/WORKSPACE" "$work/rules_cc/cc/BUILD"
printf '%s = native.%s\n' cc_library{,} cc_binary{,} cc_toolchain{,} cc_toolchain_suite{,} >"$work/rules_cc/cc/defs.bzl"
cp "$source/tests/install/program.c" "$work/outside/"
printf 'local_repository(name = "%s", path = "%s")\n' cpuslab "$work/cpuslab" rules_cc "$work/rules_cc" >"$work/outside/WORKSPACE"
cat >"$work/outside/BUILD" <<'BAZEL'
load("@rules_cc//cc:defs.bzl", "cc_binary")

cc_binary(
    name = "program",
    srcs = ["program.c"],
    deps = ["@cpuslab//:cpuslab"],
)
BAZEL
cd "$work/outside"
export HOME=$work # Bazel keeps its server and its caches there
quietly bazel --batch --output_user_root="$work/bazel" build --jobs=2 --override_repository=rules_java=$rules/java \
	--override_repository=rules_proto=$rules/proto //:program
echo "bazel: $(bazel-bin/program)"
version=$(sed -n 's/^project(cpuslab VERSION \([0-9.]*\).*/\1/p' "$source/CMakeLists.txt")
grep -q "version = \"$version\"" "$source/MODULE.bazel" && grep -qF "CPUSLAB_VERSION=\\\\\\\"$version" "$source/BUILD.bazel" ||
	fail 'MODULE.bazel or BUILD.bazel has another version'
