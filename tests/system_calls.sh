#!/bin/bash
# docs/system-calls.md is complete: no object of the library takes a function from libc that enters the kernel, what
# src/os can call is on the page, and so is what a traced run calls.
set -eu
source=$(cd "$(dirname "$0")/.." && pwd)
page=$source/docs/system-calls.md
objects=$CPUSLAB_BUILD/CMakeFiles/cpuslab_objects.dir/src
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0

# The names of calls in the tables of calls, and in that of options.
# shellcheck disable=SC2016 # the backquotes are the page's
{
	sed -n '/^| call /,/^$/p' "$page" | cut -d'|' -f2
	sed -n '/^| option /,/^$/p' "$page" | cut -d'|' -f3
} | grep -oE '`[a-z_0-9]+`' | tr -d '`' | sort -u >"$folder/listed"
[ "$(wc -l <"$folder/listed")" -gt 20 ]

# expect_listed WHAT: says which names on standard input are not on the page.
expect_listed() {
	local name missing=0
	while read -r name; do
		grep -qx "$name" "$folder/listed" || {
			echo "$1: $name is not in docs/system-calls.md"
			missing=1
		}
	done
	return $missing
}

# ---- by libc nobody enters the kernel but as the page's second table says -------------------------------------
libc=$(ldconfig -p | awk '/libc\.so\.6 .*x86-64/ { print $NF; exit }')
find "$objects" -name '*.o' -print0 | xargs -0 nm -u | awk '$1 == "U" { print $2 }' | sort -u >"$folder/wanted"
nm -D --defined-only "$libc" | awk '{ print $3 }' | sed 's/@.*//' | sort -u >"$folder/libc"
find "$objects" -name '*.o' -print0 | xargs -0 nm --defined-only | awk 'NF == 3 { print $3 }' | sort -u >"$folder/own"
comm -12 "$folder/wanted" "$folder/libc" | comm -23 - "$folder/own" >"$folder/borrowed"
[ -s "$folder/borrowed" ]
while read -r name; do
	case $name in
	getauxval) ;;
	__errno_location | __libc_single_threaded | environ | __progname | program_invocation_short_name | _dl_find_object) ;;
	atexit | __cxa_* | __register_atfork | pthread_atfork | pthread_key_create | pthread_setspecific | ferror) ;;
	fprintf | __fprintf_chk | __clone | dlsym) ;;
	__tls_get_addr | __assert_fail) ;; # builds with assertions
	*)
		echo "the library calls $name, which may enter the kernel"
		failed=1
		;;
	esac
done <"$folder/borrowed"

# ---- what src/os can call -----------------------------------------------------------------------------------------
{
	grep -rhoE '\bSYS_[a-z_0-9]+' "$source/src" | sed 's/^SYS_//'
	grep -hoE '\bENTER\([a-z_0-9]+' "$source/src/os/os.c" | sed 's/^ENTER(//'
} | sort -u >"$folder/numbers"
expect_listed "src" <"$folder/numbers" || failed=1
others=$(grep -rlE '"syscall\\n"|"svc|SYS_[a-z]' "$source/src" | grep -vE '/src/os/(os|enter|end)\.c$|/src/arch/(x86_64|system_call)\.h$' || true)
[ -z "$others" ] || {
	echo "these enter the kernel by themselves: $others"
	failed=1
}

# ---- what tests/faults can make fail: all of it, but what never does --------------------------------------------
{
	sed -n '/^set(wrapped/,/)/p' "$source/tests/faults/CMakeLists.txt" | tr -s '() \t' '\n' |
		sed -e 's/^sigaction$/rt_sigaction/' -e 's/^open$/openat/' -e 's/^getrlimit$/prlimit64/'
	grep -oE '\bSYS_[a-z_0-9]+' "$source/tests/faults/floor.c" | sed 's/^SYS_//'
	printf '%s\n' getpid gettid tgkill sched_yield rt_sigprocmask exit
} | sort -u >"$folder/failing"
while read -r name; do
	echo "tests/faults does not know of $name"
	failed=1
done < <(comm -23 "$folder/numbers" "$folder/failing")

# ---- what a run calls -------------------------------------------------------------------------------------------
# Programs, threads, forks and the tests' watchdogs need these, with or without the library.
program='execve|brk|arch_prctl|set_tid_address|set_robust_list|pread64|newfstatat|fstat|access|ioctl|clone|clone3|wait4|alarm|getrusage|exit|exit_group|lseek|pipe2|dup2|restart_syscall|rt_sigreturn|readlink|kill|tgkill'
# The kernel stops a traced run at other calls alone, by a filter: strace would stop at each.
allowed=$(tr '\n' '|' <"$folder/listed")$program
trace() {
	strace -f -qq --seccomp-bpf -e "trace=!?${allowed//|/,?}" -e signal=none -o "$folder/trace" "$@"
}
# traced ENVIRONMENT PROGRAM...: what the program calls is on the page.
traced() {
	local what=$1
	shift
	trace env "$what" "$CPUSLAB_BUILD/tests/$1" "${@:2}" >/dev/null || {
		echo "a traced run, $what: $1 failed"
		failed=1
	}
	sed -nE 's/^[0-9]+ +([a-z_0-9]+)\(.*/\1/p' "$folder/trace" | sort -u | expect_listed "a traced run, $what" || failed=1
}

if [ "${CPUSLAB_BUILD_TYPE:-Release}${CPUSLAB_COMPILER:-GNU}" != ReleaseGNU ]; then
	echo "what a run calls is shown by the release build with gcc"
elif strace -o "$folder/probe" true 2>/dev/null; then
	# What is not on the page is seen, also in a child.
	trace sh -c 'uname; true' >/dev/null
	grep -qE '^[0-9]+ +uname\(' "$folder/trace"
	# Some rounds are enough; storms are short.
	export CPUSLAB_VALGRIND=1
	for variant in CPUSLAB_OPTIONS= CPUSLAB_OPTIONS={hardened:1,guard:100,profile:64K,vcpu:slot,decay:0,huge_pages:always,huge_pages:never} \
		CPUSLAB_DEBUG=FZPU; do
		traced "$variant" malloc_contract
		traced "$variant" malloc_stress large
	done
	unset CPUSLAB_VALGRIND
	traced CPUSLAB_OPTIONS=profile:64K fork_load storm
else
	echo "no strace here: no run was traced"
fi
exit $failed
