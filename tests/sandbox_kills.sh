#!/bin/bash
# A sandbox that kills for each system call in docs/system-calls.md that the page does not allow: where a program lives
# on libc's malloc, it lives on the library, with one thread, with several, in forked children, and whatever option is
# set; and what the page lists as an exception is one, which the option beside it avoids.
#
# All calls are forbidden at once.  With CPUSLAB_SOAK=1 also one by one.
set -eu
source=$(cd "$(dirname "$0")/.." && pwd)
page=$source/docs/system-calls.md
export library=$CPUSLAB_BUILD/libcpuslab.so
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export folder
ulimit -c 0
[ -z "${CPUSLAB_SANITIZE:-}" ] || {
	echo "a sanitizer makes system calls of its own"
	exit 77
}
[ "$(uname -m)" = x86_64 ] || exit 77
"${CC:-cc}" -O1 -fno-builtin -pthread "$source/tests/sandbox/confined.c" -o "$folder/confined"
"$folder/confined" single || exit 77

# ---- what the page says ----------------------------------------------------------------------------------------

# table TITLE COLUMN: a column of the table whose first title this is.
table() {
	sed -n "/^| $1 |/,/^\$/p" "$page" | tail -n +3 | cut -d'|' -f"$2"
}
# shellcheck disable=SC2016 # the backquotes are the page's
names() {
	grep -oE '`[A-Za-z_0-9:]+`' | tr -d '`' | sort -u
}

table 'call | what for' 2 | names >"$folder/allowed"
{
	table 'call | when' 2
	table 'call at start' 2
	table option 3
	printf '`%s`\n' brk getrusage process_madvise sched_yield prctl tgkill sysinfo # what it called once, or might
} | names | comm -23 - "$folder/allowed" >"$folder/others"
[ "$(wc -l <"$folder/allowed")" -ge 6 ] && [ "$(wc -l <"$folder/others")" -ge 25 ]

# further OPTION: the calls that the page says an option adds.
further() {
	table option 2 >"$folder/options"
	table option 3 >"$folder/further"
	paste -d'|' "$folder/options" "$folder/further" | while IFS='|' read -r options calls; do
		if names <<<"$options" | grep -qx "$1"; then
			names <<<"$calls"
			if names <<<"$calls" | grep -qx profile; then further profile; fi
		fi
	done
}

# numbers NAME...: of these calls, where this machine's libc knows them.
numbers() {
	{
		echo '#include <sys/syscall.h>'
		for name in "$@"; do
			echo "SYS_$name"
		done
	} | "${CC:-cc}" -E -P - | sed -nE 's/^ *([0-9]+)$/\1/p'
}

# ---- what libc's malloc lives through --------------------------------------------------------------------------

# lives MODE NUMBER...: with the environment that the caller sets.
lives() {
	{ "$folder/confined" "$@"; } >/dev/null 2>&1
}

# The calls that kill the program itself, without the library.
own_calls() {
	local mode=$1 name
	# shellcheck disable=SC2046 # one word each
	if lives "$mode" $(numbers $(cat "$folder/others")); then return; fi
	while read -r name; do
		# shellcheck disable=SC2046
		lives "$mode" $(numbers "$name") || echo "$name"
	done <"$folder/others"
}

modes='single early threads forked orphan'
for mode in $modes; do
	own_calls "$mode" >"$folder/own.$mode" &
done
wait
grep -qx rt_sigprocmask "$folder/own.threads" # to make a thread

# ---- the trials ------------------------------------------------------------------------------------------------

# trial WANTED WHAT MODE ENVIRONMENT NUMBER...: the program lives or is killed; says when not.
trial() {
	local wanted=$1 what=$2 mode=$3 environment=$4 status=0
	shift 4
	{
		# shellcheck disable=SC2086 # one word, or none
		(cd "$(mktemp -d "$folder/run.XXXXXX")" && env $environment LD_PRELOAD="$library" "$folder/confined" "$mode" "$@") || status=$?
	} >/dev/null 2>&1
	case $wanted.$status in
	lives.0 | killed.159) ;; # 128 and SIGSYS
	*) echo "$what, $mode: status $status, and it should have been one that $wanted" ;;
	esac
}
export -f trial

# plan WANTED WHAT MODE ENVIRONMENT NAME...: a trial, which runs later.
plan() {
	local wanted=$1 what=$2 mode=$3 environment=$4 number
	shift 4
	# shellcheck disable=SC2046
	set -- $(numbers "$@")
	printf "trial %q %q %q %q %s\n" "$wanted" "$what" "$mode" "$environment" "$*" >>"$folder/plan"
	if [ "$wanted" = lives ] && [ "${CPUSLAB_SOAK:-}" = 1 ]; then
		for number in "$@"; do
			printf "trial lives %q %q %q %s\n" "$what: call $number" "$mode" "$environment" "$number" >>"$folder/plan"
		done
	fi
}

# all_but MODE NAME...: what is forbidden, apart from these and what the program needs itself.
all_but() {
	local mode=$1
	shift
	printf '%s\n' "$@" | sort -u | comm -13 - "$folder/others" | comm -23 - "$folder/own.$mode"
}

# with_option WHAT ENVIRONMENT OPTION...: in every mode, the calls that the page names for these options may be made.
with_option() {
	local what=$1 environment=$2 mode option
	shift 2
	for option in "$@"; do further "$option"; done | sort -u >"$folder/of"
	for mode in ${with_modes:-single threads}; do
		local but
		but=$(cat "$folder/of")
		case $mode.$environment in
		*membarrier:false*) ;;
		threads.* | orphan.*) but="$but membarrier" ;;
		esac
		# shellcheck disable=SC2046,SC2086
		plan lives "$what" "$mode" "$environment" $(all_but "$mode" $but)
	done
}

: >"$folder/plan"
with_modes=$modes with_option 'no option' CPUSLAB_OPTIONS=
with_modes=$modes with_option 'no membarrier' CPUSLAB_OPTIONS=membarrier:false
with_modes=$modes with_option 'thread slots' CPUSLAB_OPTIONS=vcpu:slot,membarrier:false
with_option 'no rseq of libc' GLIBC_TUNABLES=glibc.pthread.rseq=0 # its threads' rseq is what the program needs itself
with_option CPUSLAB_DEBUG CPUSLAB_DEBUG=FZPU CPUSLAB_DEBUG

# Every option of the library's own table, with a value that is not its default.
options=0
while read -r name kind default; do
	case $kind.$default in
	FLAG.true) value=false ;;
	FLAG.*) value=true ;;
	COUNT.*) value=50 ;;
	BYTES.*) value=64K ;;
	LIMIT.*) value=512M ;; # more than the trials need
	MILLISECONDS.*) value=0 ;;
	SIGNAL.*) value=12 ;;
	VCPU_MODE.*) value=cpu_id ;;
	HUGE_PAGES.*) value=always ;;
	*)
		echo "an option of a new kind, $kind: $name"
		exit 1
		;;
	esac
	options=$((options + 1))
	case $name in
	reserve) value=0 ;;
	huge_pages) with_option "$name:never" CPUSLAB_OPTIONS=huge_pages:never ;;
	esac
	case $name in
	profile_*) with_option "$name" "CPUSLAB_OPTIONS=profile:64K,$name:$value" profile "$name" ;;
	guard_*) with_option "$name" "CPUSLAB_OPTIONS=guard:50,$name:$value" guard "$name" ;;
	*) with_option "$name" "CPUSLAB_OPTIONS=$name:$value" "$name" ;;
	esac
done < <(sed -nE 's/^(OPTION|SETTING)\(([a-z_]+), ([A-Z_]+), ([^,]*),.*/\2 \3 \4/p' "$source/src/options/options.def")
[ $options -ge 25 ]

# The exceptions are true, and the option that avoids them does.
for mode in threads orphan; do
	plan killed 'membarrier' $mode CPUSLAB_OPTIONS= membarrier
	plan lives 'membarrier:false' $mode CPUSLAB_OPTIONS=membarrier:false membarrier
done
# Every allocation: which are picked is chance otherwise.
guarded=CPUSLAB_OPTIONS=guard:1,guard_cost:0,guard_second:0
plan killed 'guard: clock_gettime' single CPUSLAB_OPTIONS=guard:50 clock_gettime
plan killed "guard: gettid" single $guarded gettid
for call in rt_sigaction openat read close prlimit64; do
	plan killed "guard: $call, with the first allocation" early CPUSLAB_OPTIONS=guard:50 $call
done
for call in clock_gettime gettid process_vm_readv; do
	plan killed "profile: $call" single CPUSLAB_OPTIONS=profile:64K $call
done
for call in getpid openat read write close; do
	plan killed "profile_at_exit: $call" single CPUSLAB_OPTIONS=profile:64K,profile_at_exit:1 $call
done
for call in fcntl fstat write; do
	plan killed "stats_at_exit: $call" early CPUSLAB_OPTIONS=stats_at_exit:1 $call
done
plan killed 'leaks_at_exit: getpid' single CPUSLAB_OPTIONS=leaks_at_exit:1 getpid
for call in gettid process_vm_readv; do
	plan killed "CPUSLAB_DEBUG: $call" early CPUSLAB_DEBUG=FZPU $call
done
plan killed 'hardened: mincore' single CPUSLAB_OPTIONS=hardened:1 mincore
plan killed 'reserve: prlimit64, with the first allocation' early CPUSLAB_OPTIONS=reserve:0 prlimit64

# They sleep most of the time.
tr '\n' '\0' <"$folder/plan" | xargs -0 -P 8 -I{} bash -c '{}' >"$folder/said"
echo "$(wc -l <"$folder/plan") trials"
cat "$folder/said"
[ ! -s "$folder/said" ]
