#!/bin/bash
# The scripts that people call: a wrong call ends at once, in one line; the caller's environment does not get to the tests;
# what fails, and what is skipped, is counted; a machine that lacks something is told what.
set -u
here=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
	printf '%s\n' "$*" >&2
	exit 1
}

# says STATUS TEXT COMMAND...: ends with STATUS, and has TEXT in the one line that it writes to standard error.
says() {
	local status=$1 text=$2 ended=0
	shift 2
	"$@" >/dev/null 2>"$work/error" || ended=$?
	[ $ended -eq "$status" ] || fail "$*: status $ended: $(cat "$work/error")"
	[ "$(wc -l <"$work/error")" -eq 1 ] && grep -qF -- "$text" "$work/error" || fail "$*: $(cat "$work/error")"
}

# A tree of its own, with lints that pass, fail, are skipped and tell what they were started with.
mkdir -p "$work/tree/scripts/lint" "$work/a b/scripts"
cp "$here/scripts/test" "$here/scripts/soak" "$here/scripts/fuzz" "$here/scripts/packages" "$here/scripts/distributions" \
	"$work/tree/scripts"
cp -R "$here/scripts/no-services" "$work/tree/scripts/no-services"
cp "$here/scripts/test" "$here/scripts/soak" "$work/a b/scripts"
lint() {
	printf '#!/bin/sh\n%s\n' "$2" >"$work/tree/scripts/lint/$1"
	chmod +x "$work/tree/scripts/lint/$1"
}
lint format env
lint rooms 'echo what is wrong; exit 1'
lint links 'echo what is missing; exit 77'
cd "$work/tree" || exit 1

# ---- scripts/test and scripts/soak ---------------------------------------------------------------------------

says 2 "no step is called 'relese': release debug " scripts/test relese
says 2 "no step is called 'rooms '" scripts/test 'rooms '
says 2 "no step is called ''" scripts/test ''
# Nothing has run before the wrong one.
says 2 "no step is called 'last'" scripts/test format last
[ ! -e build-logs/format.log ] || fail "it began before it had read all of its arguments"
says 2 "no part of the long runs is called 'last': release[:REGEX], debug[:REGEX], tidy, fuzz, distributions" scripts/soak release last
says 2 "no part of the long runs is called 'release:'" scripts/soak release:
for rounds in 0 00 -1 1.5 three; do
	CPUSLAB_SOAK_ROUNDS=$rounds says 2 "CPUSLAB_SOAK_ROUNDS is not a number of rounds: '$rounds'" scripts/soak release
done
says 2 "not a number of seconds: '1h'" scripts/fuzz 1h
[ -z "$(find . -name 'build-*' ! -name build-logs -o -name 'soak-*')" ] || fail "it began before it had read all of its arguments"
says 2 "no release is called 'woody'" scripts/distributions woody
says 2 "not a number of jobs: '0'" scripts/distributions --jobs 0 sid
says 2 '--folder takes a value' scripts/distributions --folder
says 2 'the chroots must not be in the source tree' scripts/distributions --folder "$work/tree/chroots"
for script in test soak; do
	says 2 'most tests preload the library' "$work/a b/scripts/$script"
done

CPUSLAB_OPTIONS=hardened:1 CPUSLAB_SOAK=1 CPUSLAB_ANYTHING=1 LD_PRELOAD='' GLIBC_TUNABLES=glibc.malloc.check=1 DESTDIR=/none \
	MAKEFLAGS=-j9 "$work/tree/scripts/test" format >out || fail "format alone: $(cat out)"
grep -q '^passed  format' out && grep -qx '1 passed, 0 failed' out || fail "format alone: $(cat out)"
! grep -E '^(CPUSLAB_|LD_PRELOAD|GLIBC_TUNABLES|DESTDIR|MAKE)' build-logs/format.log || fail "a step got the lines above"

"$work/tree/scripts/test" format rooms links >out && fail "a step that fails is no failure: $(cat out)"
for line in 'passed  format' 'FAILED  rooms' 'what is wrong' 'skipped links: what is missing' '1 skipped'; do
	grep -q "^$line" out || fail "no line '$line': $(cat out)"
done
[ "$(tail -n 1 out)" = '1 passed, 1 failed' ] || fail "the last line: $(tail -n 1 out)"

# All steps: those that run beside others pass, are skipped, fail and are shown as any other, and none is left when it ends.
lint tidy 'echo what tidy lacks; exit 77'
lint headers 'echo what a header lacks; exit 1'
lint shell 'nice'
"$work/tree/scripts/test" >out && fail "all steps pass without a source: $(cat out)"
for line in 'FAILED  build-release' 'FAILED  build-debug' 'FAILED  build-thread' 'passed  format' 'FAILED  headers' \
	'what a header lacks' 'skipped tidy: what tidy lacks' 'passed  shell' 'FAILED  rooms'; do
	[ "$(grep -c "^$line" out)" -eq 1 ] || fail "all steps: not one line '$line': $(cat out)"
done
[ "$(cat build-logs/shell.log)" -eq 19 ] || fail "a step that runs beside others is not the nicest"

# A test that cannot be started, and a choice of none, are failures.
suite_of() {
	printf '%s\n' 'cmake_minimum_required(VERSION 3.20)' 'project(tree NONE)' 'enable_testing()' "$@" >CMakeLists.txt
}
suite_of 'add_test(NAME works COMMAND true)' 'add_test(NAME absent COMMAND /none)'
"$work/tree/scripts/test" release >out && fail "a test that cannot be started passes: $(cat out)"
grep -q '^FAILED  release: ctest ended with 8' out || fail "a test that cannot be started: $(cat out)"
[ "$(tail -n 1 out)" = '2 passed, 1 failed' ] || fail "a test that cannot be started: $(tail -n 1 out)"
suite_of
"$work/tree/scripts/test" release >out && fail "no tests pass: $(cat out)"

# Whatever ends it ends what it started: a step beside others, a test, a lint.
# gone PID-FILE: that process ends, and is dead at least where nobody has asked yet.
gone() {
	while grep -q ') [^Z] ' "/proc/$(cat "$1")/stat" 2>/dev/null; do sleep 0.1; done
}
# ended_by SIGNAL STATUS STEP...
ended_by() {
	local signal=$1 status=$2 ended=0 step
	shift 2
	rm -f build-logs/*.pid
	env --default-signal=INT scripts/test "$@" >out &
	step=$!
	until [ -s build-logs/hangs.pid ]; do sleep 0.1; done
	kill "-$signal" $step
	wait $step || ended=$?
	[ $ended -eq "$status" ] || fail "ended by SIG$signal, its status was $ended"
	gone build-logs/hangs.pid
}
hangs='echo $$ >build-logs/hangs.new; mv build-logs/hangs.new build-logs/hangs.pid; sleep 1000'
printf '#!/bin/sh\ncd "$(dirname "$0")"\n%s\n' "$hangs" >hangs
chmod +x hangs
suite_of "add_test(NAME hangs COMMAND $PWD/hangs)"
ended_by TERM 143 release
ended_by INT 130 release
lint format "$hangs"
ended_by HUP 129 format
rm CMakeLists.txt
ended_by TERM 143

# ---- scripts/clang ---------------------------------------------------------------------------------------------

clang() {
	env PATH="$work/clang:/usr/bin:/bin" "$here/scripts/clang" "$1-for-tests"
}
mkdir "$work/clang"
[ "$(clang clang++ 2>&1)" = 'no clang++-for-tests on this machine' ] || fail 'a clang that is not there'
for suffix in '' -9 -21 -16; do
	printf '#!/bin/sh\n' >"$work/clang/clang++-for-tests$suffix"
	chmod +x "$work/clang/clang++-for-tests$suffix"
	[ "$(clang clang++)" = "clang++-for-tests$suffix" ] || fail "of the clangs up to $suffix: $(clang clang++)"
done

# ---- scripts/packages ------------------------------------------------------------------------------------------

# provide NAME TEXT: a program of this name, in the only folder that is looked into.
mkdir "$work/bin"
for program in sh tr sed; do
	ln -s "$(command -v $program)" "$work/bin/$program"
done
provide() {
	printf '#!/bin/sh\n%s\n' "$2" >"$work/bin/$1"
	chmod +x "$work/bin/$1"
}
export PATH=$work/bin:$PATH
packages() {
	env PATH="$work/bin" scripts/packages "$@"
}
says 2 "no group 'biuld'" packages biuld
says 1 'cannot be built without: cc cmake ninja' packages build
for program in cc ninja-build; do
	provide $program ''
done
provide cmake 'echo "cmake version 3.18.4"'
says 1 'cannot be built with CMake 3.18.4: it needs 3.22' packages build
provide cmake 'echo "cmake version 4.3.1"'
packages build >out 2>&1 && [ ! -s out ] || fail "another distribution, with all there is: $(cat out)"

# Debian without libpng-dev, first for who may not install, then without a network.
provide dpkg-query 'for last; do :; done; [ "$last" = libpng-dev ] || echo "install ok installed"'
provide id 'echo 1000'
provide apt-get 'exit 100'
says 0 'wants these packages: libpng-dev (as root: apt-get install libpng-dev)' packages build
provide id 'echo 0'
packages build >out 2>&1 || fail "what it can do without: $(cat out)"
[ "$(cat out)" = "installing: libpng-dev
packages: could not be installed: libpng-dev, nor could apt-get update fetch its lists" ] || fail "no network: $(cat out)"
provide apt-get ''
packages build >out 2>&1 && [ "$(cat out)" = 'installing: libpng-dev' ] || fail "as root: $(cat out)"

# Another release has other names.  Tests want the newest headers of the system, of who may install them.
for program in grep tail; do
	ln -s "$(command -v $program)" "$work/bin/$program"
done
provide dpkg-query ''
provide apt-cache 'case "$*" in
"pkgnames libnsync1") echo libnsync1t64 ;;
"pkgnames "*t64 | "pkgnames libmimalloc3") echo "$2" ;;
"depends clang") printf "clang\n  Depends: clang-21\n" ;;
"show "*) echo "Version: 3.14.8-1" ;;
esac'
provide id 'echo 1000'
packages bench test >out 2>&1 || fail "another release: $(cat out)"
for package in libnsync1t64 libmimalloc3 libtcmalloc-minimal4t64 clang-21 clang-tidy-21 libclang-rt-21-dev libpython3.14-testsuite; do
	grep -q " $package " out || fail "another release: no $package in $(cat out)"
done
provide dpkg-query 'echo "install ok installed"'
provide id 'echo 0'
provide apt-get "echo \"\$*\" >>$work/apt"
packages build test >out 2>&1 && [ ! -s out ] || fail "all is there: $(cat out)"
grep -q '^update' "$work/apt" && grep -q 'only-upgrade libc6-dev linux-libc-dev' "$work/apt" || fail "not the newest headers: $(cat "$work/apt")"
# Packages that bring services start none.
for program in deb-systemd-invoke deb-systemd-helper invoke-rc.d update-rc.d; do
	found=$(PATH=$(sed -n 's/.*DPkg::Path=\([^ ]*\) .*/\1/p' "$work/apt" | tail -n 1) command -v $program)
	cmp -s "$found" scripts/no-services/$program && "$found" start ssh || fail "dpkg would find $program in '$found'"
done
provide apt-get 'exit 100'
says 0 'could not be brought up to date: libc6-dev linux-libc-dev, nor could' packages build test
provide dpkg-query ''
provide apt-get ''
rm "$work/bin/cmake"
packages build >out 2>&1 && fail "without cmake: $(cat out)"
[ "$(tail -n 1 out)" = 'cpuslab cannot be built without: cmake' ] || fail "without cmake: $(cat out)"
exit 0
