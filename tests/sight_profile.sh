#!/bin/bash
# Heap profiles name who allocates: from outside, by options, at a signal; go tool pprof opens them; counts are
# right within the bounds of chance, with two functions that take turns; and without a profile nothing is kept.
set -u
# shellcheck source-path=SCRIPTDIR source=shared/sight.bash
. "$(dirname "$0")/shared/sight.bash"
cd "$work" || exit 2

# near VALUE WANTED PERCENT
near() {
	awk -v value="$1" -v wanted="$2" -v bound="$3" \
		'BEGIN { exit !(value >= wanted * (1 - bound / 100) && value <= wanted * (1 + bound / 100)) }'
}
# Where a function of target_leak is.
line='leak\.c:[0-9]*'
# kilobytes FUNCTION <TABLE: what it allocated itself.
kilobytes() {
	awk -v name="$1" '$5 == name { print $1 + 0; found = 1 } END { if (!found) print 0 }'
}

# ---- from outside -------------------------------------------------------------------------------------------------

begin "$build/tests/target_leak"
# What leaks while commands start and end would be in one figure and not in the other.
kill -STOP "$pid"
before=$(in_use malloc-960)
"$cpuslab" profile --seconds=2 --interval=8K --keep --output=one.pb "$pid" &
profiler=$!
eventually waits_at $profiler
kill -CONT "$pid"
wait $profiler || fail "no profile"
[ -s one.pb ] || fail "an empty profile"
eventually leaked_since "$before"
kill -STOP "$pid"
"$cpuslab" profile --format=top "$pid" >top || fail "a profile that runs is not read"
after=$(in_use malloc-960)
kill -CONT "$pid"
awk 'NR == 3 && $0 !~ /  append_to_log at leak\.c:[0-9]+$/ { exit 1 }' top || fail "not the leak first: $(cat top)"
# Some hundreds of samples: four standard deviations are less than this.
near "$(kilobytes append_to_log <top)" $(((after - before) / 1024)) 25 ||
	fail "the leak is $(((after - before) / 1024)) KiB: $(cat top)"
near "$(kilobytes remember_session <top)" 1000 50 || fail "sessions are 1000 KiB: $(cat top)"
"$cpuslab" profile --format=folded "$pid" | grep -q "^_start;.*main at $line;handle_request at $line;append_to_log at $line [0-9]*\$" ||
	fail "no folded stacks"
"$cpuslab" profile --format=heap "$pid" >one.heap || fail "no text"
head -1 one.heap | grep -q '^heap profile: *[0-9]*: *[0-9]* *\[ *[0-9]*: *[0-9]*\] @ heap_v2/8192$' || fail "its head"
grep -q '^MAPPED_LIBRARIES:$' one.heap && grep -q 'r-xp.*target_leak' one.heap || fail "its mappings"
# Who allocated most, by turns of eight, one and a tenth.
"$cpuslab" profile --format=top --total "$pid" >total
awk 'NR == 3 && $0 !~ /  parse_request at leak\.c:[0-9]+$/ { exit 1 }' total || fail "not requests first: $(cat total)"
eventually leaked_since "$after"
"$cpuslab" profile --seconds=0 --output=two.pb "$pid" || fail "no second profile"

go=$(command -v go || true)
if [ -n "$go" ]; then
	export PPROF_TMPDIR=$work GOTOOLCHAIN=local
	go tool pprof -top one.pb >pprof 2>pprof.error || fail "go tool pprof: $(cat pprof.error)"
	grep -A 1 'flat%' pprof | grep -q ' append_to_log$' || fail "pprof shows: $(cat pprof)"
	grep -q '^Type: inuse_space' pprof || fail "its default is not what is in use"
	go tool pprof -top -sample_index=alloc_space one.pb 2>/dev/null | grep -A 1 'flat%' | grep -q ' parse_request$' ||
		fail "pprof -alloc_space"
	go tool pprof -top one.heap 2>/dev/null | grep -A 1 'flat%' | grep -q ' append_to_log$' || fail "pprof of heap_v2"
	# The difference of two shows what has leaked in between.
	go tool pprof -top -diff_base one.pb two.pb 2>/dev/null | grep -A 1 'flat%' | grep -q ' append_to_log$' ||
		fail "pprof -diff_base"
	go tool pprof -raw one.pb 2>/dev/null | grep -q "target_leak [0-9a-f]\{40\}" || fail "no build id"
else
	echo "there is no go: pprof was not tried"
fi
kill -KILL "$pid"

# ---- linked into the program --------------------------------------------------------------------------------------

for wrong in seconds=soon interval=0 format=pprof; do
	"$cpuslab" profile "--$wrong" "$pid" 2>error
	[ $? -eq 2 ] && [ "$(wc -l <error)" -eq 1 ] && grep -q "^cpuslab profile: --${wrong%=*} takes .*, not '${wrong#*=}'$" error ||
		fail "--$wrong: $(cat error)"
done
# A program may call its functions as the library calls its own.
objcopy --redefine-sym parse_request=sample --redefine-sym append_to_log=alloc_slow "$build/tests/target_leak" renamed
begin ./renamed
"$cpuslab" profile --seconds=1 --interval=8K --total --format=folded --keep "$pid" >folded || fail "no profile: renamed"
grep -q ";main at $line;handle_request at $line;sample at $line [1-9][0-9]*\$" folded || fail "no sample: $(cat folded)"
eventually leaked_since 0
"$cpuslab" profile --format=top "$pid" >top
awk 'NR == 3 && $5 != "alloc_slow" { exit 1 }' top || fail "no alloc_slow: $(cat top)"
kill -KILL "$pid"
# The library's own frames are left out there too, and what remains is the program's.
for way in object static; do
	library='' begin "$build/tests/target_leak_$way"
	"$cpuslab" profile --seconds=1 --interval=8K --format=folded --total --keep "$pid" >folded || fail "no profile: $way"
	grep -q ";main at $line;handle_request at $line;parse_request at $line [1-9][0-9]*\$" folded || fail "$way: $(cat folded)"
	grep -v ";handle_request at $line;\(parse_request\|remember_session\|append_to_log\) at $line [0-9]*\$" folded && fail "$way: not the program's"
	if [ -n "$go" ]; then
		"$cpuslab" profile --seconds=0 --output=linked.pb "$pid" || fail "no profile: $way"
		go tool pprof -top -sample_index=alloc_space linked.pb >pprof 2>/dev/null
		grep -A 1 'flat%' pprof | grep -q ' parse_request$' || fail "pprof of $way shows: $(cat pprof)"
	fi
	kill -KILL "$pid"
done
# Its first calls come before libc knows where its own code lies.
CPUSLAB_OPTIONS=profile:1 "$build/tests/target_leak_static" 0 >/dev/null || fail "a static program that is profiled: $?"
CPUSLAB_DEBUG=U "$build/tests/target_leak_static" 0 >/dev/null || fail "a static program with owners: $?"
# A static program without the table that stacks are found by says so.
library='' begin "$build/tests/target_crowd_static" 2 100
"$cpuslab" profile --seconds=1 --interval=8K --format=folded --total --keep "$pid" >folded || fail "no profile: static"
grep -q '^(no_stack) [1-9][0-9]*$' folded || fail "without a table: $(cat folded)"
"$cpuslab" profile --seconds=0 --format=top --total "$pid" | grep -q '(no stack)$' || fail "a table without (no stack)"
kill -KILL "$pid"

# ---- nothing to tell ------------------------------------------------------------------------------------------------

# Of a process that allocates nothing: a profile without samples, which says why.
begin sh -c 'echo; exec sleep 1000'
sleeps() {
	[ "$(cat "/proc/$pid/comm")" = sleep ] && grep -q ') S ' "/proc/$pid/stat"
}
eventually sleeps
"$cpuslab" profile --seconds=0 --output=sleeps.pb "$pid" 2>error || fail "no profile of a process that sleeps: $(cat error)"
grep -q 'there are no samples' error || fail "not said: $(cat error)"
[ -s sleeps.pb ] || fail "an empty file for a process that sleeps"
if [ -n "$go" ]; then
	go tool pprof -raw sleeps.pb 2>error >raw || fail "pprof of no samples: $(cat error)"
fi
# An answer that nobody waited for is none.
echo kept >kept.pb
"$cpuslab" profile --seconds=60 --output=kept.pb "$pid" 2>error &
waits=$!
eventually waits_at $waits
kill -INT $waits
wait $waits && fail "nobody waited, and there is a profile"
grep -q 'had not begun' error && grep -qx kept kept.pb || fail "ended before there was a profile: $(cat error)"
for format in heap folded top; do
	"$cpuslab" profile --seconds=0 --format=$format "$pid" >/dev/null 2>error || fail "no samples as $format: $(cat error)"
done

# ---- ends early, or cannot be written ------------------------------------------------------------------------------

begin "$build/tests/target_leak"
# Before it waits, and before there is a profile.
"$cpuslab" profile --seconds=100000 --output="$work/none/one.pb" "$pid" 2>error && fail "there is no such folder"
grep -q 'none/one.pb: No such file' error || fail "$(cat error)"
# What there was stays where there is nothing to write.
echo before >kept.pb
"$cpuslab" profile --seconds=0 --output=kept.pb $$ 2>/dev/null && fail "bash runs on cpuslab"
[ "$(cat kept.pb)" = before ] || fail "a profile is lost for one that there was not"
# at_once: a profile that would run for ever is what ended, and left nothing behind.
at_once() {
	"$cpuslab" profile --seconds=0 --format=heap --interval=32K "$pid" 2>/dev/null | grep -q '@ heap_v2/32768$'
}
for signal in INT TERM HUP; do
	rm -f early.pb
	env --default-signal=INT,HUP "$cpuslab" profile --seconds=100000 --interval=8K --output=early.pb "$pid" &
	waiter=$!
	# It has said what it wants: a command that asks now does not start a profile instead.
	running() {
		waits_at $waiter &&
			"$cpuslab" profile --seconds=0 --format=heap "$pid" 2>/dev/null | grep -q '@ heap_v2/8192$'
	}
	eventually running
	kill -$signal $waiter
	wait $waiter || fail "ended by $signal: $?"
	[ -s early.pb ] || fail "an empty profile after $signal"
	at_once || fail "after $signal the process goes on with its profile"
done
if [ -n "$go" ]; then
	go tool pprof -raw early.pb 2>/dev/null >raw || fail "pprof of what ended early"
	! grep -q '^Duration: 1e' raw || fail "it ran shorter: $(grep Duration raw)"
fi
kill -KILL "$pid"

# A process that executes another program meanwhile: nothing is written to where the library was.
begin "$build/tests/target_replaced"
"$cpuslab" profile --seconds=100000 --output=replaced.pb "$pid" 2>error &
waiter=$!
eventually waits_at $waiter
kill -STOP $waiter
kill -USR1 "$pid"
eventually lines 2
kill -CONT $waiter
wait $waiter && fail "a profile of a program that is no more"
grep -q 'executes another program now' error || fail "not said: $(cat error)"
[ -z "$(compgen -G 'replaced.pb*')" ] || fail "a file without a profile: $(compgen -G 'replaced.pb*')"
kill -USR1 "$pid"
eventually lines 3
[ "$(tail -n 1 lines)" = untouched ] || fail "the program that followed was $(tail -n 1 lines)"

# ---- files ---------------------------------------------------------------------------------------------------------

begin "$build/tests/target_leak"
# A process that ends meanwhile leaves the older file, and no other.
mkdir files
echo before >files/ended.pb
"$cpuslab" profile --seconds=100000 --output=files/ended.pb "$pid" 2>error &
waiter=$!
eventually waits_at $waiter
kill -KILL "$pid"
wait $waiter && fail "a profile of a process that has ended"
grep -q 'the process has ended' error || fail "not said: $(cat error)"
[ "$(cat files/*)" = before ] || fail "it left $(ls files)"
begin "$build/tests/target_leak"
take() {
	"$cpuslab" profile --seconds=0.2 --interval=8K "$@" "$pid"
}
# On a disk that is full the older file stays, and no part of the new one.
(
	trap '' XFSZ
	ulimit -f 1
	take --interval=1K --format=heap --output=files/ended.pb 2>&1 && echo "it was written"
) | grep -qx 'cpuslab profile: files/ended.pb: File too large' || fail "a full disk"
[ "$(cat files/*)" = before ] || fail "it left $(ls files)"
take --output=/dev/full 2>error && fail "a full device"
grep -q '^cpuslab profile: /dev/full: No space left on device$' error && [ -c /dev/full ] || fail "$(cat error)"
# Links lead to the file that is written, and a file keeps its mode.
chmod 640 files/ended.pb
ln -s files/ended.pb link.pb
take --output=link.pb || fail "through a link"
[ -L link.pb ] && [ "$(stat -c %a files/ended.pb)" = 640 ] && [ -s files/ended.pb ] &&
	[ "$(head -c 6 files/ended.pb)" != before ] || fail "through a link: $(ls -l files link.pb)"
# Standard output, as a table; into a pipe; not into a folder.
take --output=- | grep -q 'flat%' || fail "no table to standard output"
[ ! -e ./- ] || fail "a file of that name"
take --format=heap --output=/proc/self/fd/1 | grep -q '@ heap_v2' || fail "no profile into a pipe"
for where in files files/none/ nowhere/one.pb; do
	"$cpuslab" profile --seconds=100000 --output=$where "$pid" 2>error && fail "written to $where"
	[ "$(wc -l <error)" -eq 1 ] && grep -q "^cpuslab profile: $where: " error || fail "$where: $(cat error)"
done
kill -KILL "$pid"

# ---- by options ---------------------------------------------------------------------------------------------------

CPUSLAB_OPTIONS=profile:16K,profile_at_exit:true CPUSLAB_PROFILE=$work/exit begin "$build/tests/target_leak" 1
eventually test -s "$work/exit.$pid.1.pb"
# Where none can be written the program says so, once.
CPUSLAB_OPTIONS=profile_at_exit:true LD_PRELOAD=$build/libcpuslab.so bash -c : 2>error
grep -q '^cpuslab: no heap profile .* the option profile starts one$' error || fail "without a profile: $(cat error)"
CPUSLAB_OPTIONS=profile:4K,profile_growth:64K,profile_at_exit:true CPUSLAB_PROFILE=$work/none/exit \
	LD_PRELOAD=$build/libcpuslab.so "$build/tests/target_leak" 1 >/dev/null 2>error
[ "$(cat error)" = "cpuslab: no heap profile was written to $work/none/exit.*.pb: errno 2" ] || fail "$(cat error)"
CPUSLAB_OPTIONS=profile:4K,profile_at_exit:true CPUSLAB_PROFILE=$(printf '%0500d' 0) \
	LD_PRELOAD=$build/libcpuslab.so "$build/tests/target_leak" 1 >/dev/null 2>error
[ "$(cat error)" = "cpuslab: CPUSLAB_PROFILE is too long: heap profiles are called cpuslab.*.pb" ] || fail "$(cat error)"
[ -n "$(compgen -G 'cpuslab.*.1.pb')" ] || fail "no profile of the usual name"
CPUSLAB_OPTIONS=profile:16K,profile_growth:4M CPUSLAB_PROFILE=$work/growth begin "$build/tests/target_leak"
eventually test -s "$work/growth.$pid.3.pb"
kill -KILL "$pid"
CPUSLAB_OPTIONS=profile:16K,profile_high:true CPUSLAB_PROFILE=$work/high begin "$build/tests/target_leak"
eventually test -s "$work/high.$pid.3.pb"
kill -KILL "$pid"
CPUSLAB_OPTIONS=profile_signal:12 CPUSLAB_PROFILE=$work/signal begin "$build/tests/target_leak"
kill -USR2 "$pid"
started() {
	"$cpuslab" profile --seconds=0 --format=heap "$pid" 2>/dev/null | grep -q '@ heap_v2/524288'
}
eventually started
kill -USR2 "$pid"
eventually test -s "$work/signal.$pid.1.pb"
kill -KILL "$pid"

# ---- one that was kept ends when that is asked for --------------------------------------------------------------------

begin "$build/tests/target_leak"
"$cpuslab" profile --keep --seconds=1 --interval=16K -o before.pb "$pid" || fail "no profile"
"$cpuslab" profile --end --seconds=0 "$pid" >top || fail "a profile that runs is not read"
head -1 top | grep -q 'a sample every 16384 ' || fail "not the profile that runs: $(cat top)"
"$cpuslab" profile --seconds=1 --interval=32K "$pid" >top || fail "no profile after that"
head -1 top | grep -q 'a sample every 32768 ' || fail "what was ended runs on: $(cat top)"
kill -KILL "$pid"

# ---- names in another root; what is stopped ---------------------------------------------------------------------------

if [ "$(id -u)" -eq 0 ] && mkdir jail && cp "$build/tests/target_leak_static" jail/leak && chroot jail /leak 0 >/dev/null 2>&1; then
	library='' begin chroot jail /leak
	for forms in folded top; do
		"$cpuslab" profile --seconds=1 --interval=16K --format=$forms "$pid" >jailed || fail "no profile of a jail"
		grep -q append_to_log jailed || fail "no names in another root: $(cat jailed)"
	done
	kill -KILL "$pid"
else
	echo "no other root directory can be had here: names of functions there were not looked up"
fi
begin "$build/tests/target_leak"
kill -STOP "$pid"
"$cpuslab" profile --seconds=0 "$pid" >top 2>error || fail "a stopped process: $(cat error)"
grep -qx "cpuslab profile: process $pid is stopped: there are no samples" error || fail "a stopped process: $(cat error)"
kill -KILL "$pid"

# ---- many threads, forks and a start and end under way -----------------------------------------------------------------

CPUSLAB_OPTIONS=profile:8K begin "$build/tests/target_crowd" 8 1000
for _ in 1 2 3; do
	"$cpuslab" profile --format=top "$pid" >top || fail "crowd"
done
near "$(kilobytes churn <top)" $((8000 * 2080 / 1024)) 20 || fail "8000 objects of 16 to 4016 bytes: $(cat top)"
kill -0 "$pid" || fail "it has died"
kill -KILL "$pid"
begin "$build/tests/target_crowd" 4 500
for _ in 1 2 3 4; do
	"$cpuslab" profile --seconds=0.2 --interval=4K --output=again.pb "$pid" || fail "start and end"
done
kill -0 "$pid" || fail "it has died of it"
exit 0
