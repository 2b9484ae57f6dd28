#!/bin/bash
# `cpuslab export` serves the figures of several processes, correctly and to rude clients too.
set -u
# shellcheck source-path=SCRIPTDIR source=shared/sight.bash
. "$(dirname "$0")/shared/sight.bash"
command -v curl >/dev/null || { echo "skipped: no curl on this machine" && exit 77; }

begin "$build/tests/target_crowd" 2 500
one=$pid
begin "$build/tests/target_caches" 10 2
"$cpuslab" export --listen 127.0.0.1:0 >"$work/url" 2>"$work/told" &
begun+=($!)
disown $!
eventually test -s "$work/url"
url=$(cat "$work/url")

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
exit 0
