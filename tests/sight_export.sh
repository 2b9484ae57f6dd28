#!/bin/bash
# `cpuslab export` serves the figures of several processes, correctly and to rude clients too.
set -u
# shellcheck source-path=SCRIPTDIR source=shared/sight.bash
. "$(dirname "$0")/shared/sight.bash"
command -v curl >/dev/null || { echo "skipped: no curl on this machine" && exit 77; }

begin "$build/tests/target_crowd" 2 500
one=$pid
begin "$build/tests/target_caches" 10 2
"$cpuslab" export --listen 127.0.0.1:0 >"$work/first_url" 2>"$work/told" &
begun+=($!)
disown $!
eventually test -s "$work/first_url"
url=$(cat "$work/first_url")

curl -sSf "$url" >"$work/metrics" || fail "no answer"
for process in "$one" "$pid"; do
	grep -q "^cpuslab_bytes{pid=\"$process\",.*part=\"live\"} [1-9]" "$work/metrics" || fail "nothing of $process"
done
grep -q "^cpuslab_cache_live_objects{pid=\"$pid\",process=\"target_caches\",cache=\"sort_3\"} 1$" "$work/metrics" ||
	fail "not the object of sort_3"
[ "$(grep -c '^# TYPE cpuslab_bytes ' "$work/metrics")" = 1 ] || fail "a metric in two places"
curl -sSf -I "$url" | grep -q '^Content-Type: text/plain; version=0.0.4' || fail "HEAD"
[ "$(curl -s -o /dev/null -w '%{http_code}' "${url%/metrics}/other")" = 404 ] || fail "not 404"
# One that claims to have more caches than there is memory for is left out, and nobody else.
begin "$build/tests/target_garbled" cache 0 0x100000 magazine.cache_count many 4 magazine.caches all 8
for _ in 1 2; do
	curl -sSf "$url" >"$work/metrics" || fail "one process keeps the others out"
	grep -q "^cpuslab_bytes{pid=\"$one\",.*part=\"live\"} [1-9]" "$work/metrics" || fail "nothing of $one"
	! grep -q "pid=\"$pid\"" "$work/metrics" || fail "what a process made up"
done
grep -qx "cpuslab export: process $pid cannot be read within bounds, left out" "$work/told" || fail "$(cat "$work/told")"
kill -KILL "$pid"

# What follows is about processes of one name, that no others of this machine have.
alone=exported_$$
for program in garbled caches crowd; do
	mkdir "$work/$program"
	cp "$build/tests/target_$program" "$work/$program/$alone"
done
# serve NAME=VALUE...: on an address of its own, with such variables.
serve() {
	rm -f "$work/url"
	env "$@" "$cpuslab" export --listen 127.0.0.1:0 "$alone" >"$work/url" 2>"$work/told" &
	server=$!
	begun+=("$server")
	disown "$server"
	eventually test -s "$work/url"
}
# has PROCESS: the last answer, of what that has.
has() {
	grep -q "^cpuslab_bytes{pid=\"$1\",.*part=\"live\"} [1-9]" "$work/metrics"
}

# Several that each claim as many as one may: those that claim most are left out, however early they come.
begin "$work/caches/$alone" 10 2
early=$pid claiming=()
for _ in 1 2 3 4 5 6; do
	begin "$work/garbled/$alone" magazine.caches fakes 8 magazine.cache_count number:16000 8 cache.slab_count 1 fake
	claiming+=("$pid")
done
begin "$work/caches/$alone" 10 2
serve
# On a very busy machine one may take too long, and then is not looked at again.
for _ in 1 2 3 4; do
	curl -sSf --max-time 120 "$(cat "$work/url")" >"$work/metrics" || fail "several processes keep the others out"
	! has "$early" || ! has "$pid" || break
done
for process in "$early" "$pid"; do
	has "$process" || fail "nothing of $process: $(cat "$work/told")"
done
[ "$(grep -c ', left out$' "$work/told")" -ge 2 ] || fail "six have all that they claim: $(cat "$work/told")"
kill -KILL "$server" "$early" "${claiming[@]}"

# Two whose memory never comes: they take five seconds each, once, and nobody else is left out.
begin "$work/crowd/$alone" 1 10
never="$pid"
begin "$work/crowd/$alone" 1 10
never="$never $pid"
begin "$work/caches/$alone" 10 2
serve READER_NEVER="$never" LD_PRELOAD="$build/tests/libreader_stops.so"
for _ in 1 2 3 4; do
	curl -sSf --max-time 120 "$(cat "$work/url")" >"$work/metrics" || fail "two processes keep the others out"
	has "$pid" || fail "nothing of $pid: $(cat "$work/told")"
	for process in $never; do
		! grep -q "pid=\"$process\"" "$work/metrics" || fail "$process was read"
	done
done
for process in $never; do
	[ "$(grep -cx "cpuslab export: process $process cannot be read within bounds, left out" "$work/told")" = 1 ] ||
		fail "$process was waited for again and again, or not at all: $(cat "$work/told")"
	kill -KILL "$process"
done
kill -KILL "$server"

# No memory for an answer: it says so, and there is never an answer without what could be read.
refused=0 given=0
for ((at = 1; given < 3; at += at < 60 ? 1 : 23)); do
	serve FAILS_AT=$at FAILS_ON=1 LD_PRELOAD="$build/tests/libcalloc_fails.so"
	status=$(curl -s -o "$work/metrics" -w '%{http_code}' "$(cat "$work/url")")
	if [ "$status" = 200 ]; then
		has "$pid" || grep -qx "cpuslab export: process $pid cannot be read within bounds, left out" "$work/told" ||
			fail "allocation $at failed: an answer without $pid, and nothing says so"
		given=$((given + 1))
	else
		[ "$status" = 500 ] || fail "allocation $at failed: $status"
		refused=$((refused + 1)) given=0
	fi
	[ $at -lt 1000 ] || fail "there is never enough memory"
	kill -KILL "$server"
done
[ $refused -ge 4 ] || fail "only $refused answers were refused"

# One that says nothing at all, one that hangs up, and one that never comes to an end.
address=${url#http://} port=${address##*:}
exec 4<>"/dev/tcp/127.0.0.1/${port%%/*}"
exec 5<>"/dev/tcp/127.0.0.1/${port%%/*}"
exec 5>&-
exec 6<>"/dev/tcp/127.0.0.1/${port%%/*}"
(while sleep 1 && printf G >&6; do :; done) 2>/dev/null &
begun+=($!)
disown $!
curl -sSf --max-time 30 "$url" >/dev/null || fail "one client keeps the others out"
for where in nonsense 127.0.0.1 127.0.0.1: 127.0.0.1:65536 localhost:1; do
	"$cpuslab" export --listen $where 2>"$work/error"
	[ $? -eq 2 ] && grep -q "^cpuslab export: --listen takes ADDRESS:PORT in numbers, .*, not '$where'$" "$work/error" ||
		fail "$where: $(cat "$work/error")"
done
where=127.0.0.1:${port%%/*}
"$cpuslab" export --listen "$where" 2>"$work/error"
[ $? -eq 1 ] && grep -q "^cpuslab export: $where: " "$work/error" || fail "$where: $(cat "$work/error")"
exit 0
