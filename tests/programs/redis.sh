#!/bin/bash
# redis-server under redis-benchmark, over a Unix socket of its own: every reply checked for errors, a known
# data set compared by the server's own digest, MEMORY commands, scripts, a BGSAVE (which forks while I/O threads
# live), and a restart from the file that the child wrote.
# shellcheck source=preload.sh
. "$(dirname "$0")/preload.sh"
needs redis-cli redis-benchmark redis-check-rdb
# One binary with several names; Debian's redis-tools holds it, so no system service has to be installed.
server=$(command -v redis-server || true)
if [ -z "$server" ]; then
	server=$scratch/redis-server
	ln -s "$(command -v redis-check-rdb)" "$server"
fi

pid=
trap 'status=$?; [ -z "$pid" ] || kill -9 "$pid" 2>/dev/null || true; (exit $status); end' EXIT

cli() {
	redis-cli -s "$scratch/redis.sock" "$@"
}

# start SIDE: leaves the server's process in $pid.
start() {
	local run=
	[ "$1" = plain ] || run=preloaded
	: >"$scratch/$1.log"
	(cd "$scratch/$1" && $run exec_server "$1") &
	pid=$!
	for _ in $(seq 300); do
		[ "$(cli PING 2>/dev/null)" = PONG ] && return
		kill -0 "$pid" 2>/dev/null || break
		sleep 0.1
	done
	cat "$scratch/$1.log" "$scratch/$1.err" >&2
	fail "the server ($1) does not answer"
}

exec_server() {
	exec "$server" --port 0 --unixsocket "$scratch/redis.sock" --dir . --save "" --appendonly no \
		--daemonize no --io-threads 2 --enable-debug-command local --logfile "$scratch/$1.log" \
		--activedefrag no 2>>"$scratch/$1.err" >>"$scratch/$1.out"
}

stop() {
	local status=0
	cli SHUTDOWN NOSAVE >/dev/null 2>&1 || true
	wait "$pid" || status=$?
	pid=
	[ "$status" -eq 0 ] || fail "the server ($1) ended with status $status: $(tail -n 30 "$scratch/$1.log")"
	[ ! -s "$scratch/$1.err" ] || fail "the server ($1) wrote on stderr: $(cat "$scratch/$1.err")"
	! grep -qE 'crashed by signal|REDIS BUG REPORT|ASSERTION FAILED' "$scratch/$1.log" ||
		fail "the server ($1) crashed: $(tail -n 60 "$scratch/$1.log")"
}

# The known data set: every type, small and large encodings, overwrites, expiries, deletes.
commands() {
	awk 'BEGIN {
		for (i = 0; i < 30000; i++) {
			printf "SET string:%d %0*d\r\n", i, 1 + i * 37 % 700, i
			printf "HSET hash:%d field:%d value-%d\r\n", i % 300, i, i * 7919
			printf "RPUSH list:%d element-%d\r\n", i % 200, i
			printf "SADD set:%d member-%d\r\n", i % 100, i * 31 % 5000
			printf "ZADD sorted:%d %d member-%d\r\n", i % 50, i * 104729 % 10007, i
			if (i % 3 == 0) printf "APPEND string:%d %0*d\r\n", i / 3, i % 400, i
			if (i % 5 == 0) printf "DEL string:%d\r\n", i / 5
			if (i % 7 == 0) printf "XADD stream:%d %d-1 key %d\r\n", i % 10, i + 1, i
		}
		for (i = 0; i < 300; i += 3) printf "UNLINK hash:%d\r\n", i
		printf "EVAL \"local t = {} for i = 1, 20000 do t[i] = redis.sha1hex(tostring(i)) end redis.call(\"SET\", \"script\", table.concat(t)) return #t\" 0\r\n"
	}' | sed "s/(\"SET\", \"script\"/('SET', 'script'/"
}

load() {
	commands | cli --pipe >"$scratch/$1.load" 2>&1 || fail "loading ($1): $(cat "$scratch/$1.load")"
	grep -q 'errors: 0,' "$scratch/$1.load" || fail "loading ($1): $(cat "$scratch/$1.load")"
	cli DEBUG DIGEST >"$scratch/$1.digest"
	cli DBSIZE >>"$scratch/$1.digest"
}

save() {
	local saved
	saved=$(cli LASTSAVE)
	sleep 1.1 # LASTSAVE counts in seconds
	cli BGSAVE | grep -q 'Background saving started' || fail "BGSAVE ($1) was refused"
	for _ in $(seq 300); do
		[ "$(cli LASTSAVE)" = "$saved" ] || break
		sleep 0.1
	done
	cli INFO persistence | grep -q 'rdb_last_bgsave_status:ok' || fail "BGSAVE ($1) failed"
	[ -s "$scratch/$1/dump.rdb" ] || fail "BGSAVE ($1) left no file"
}

prove_bound "$server" --version

if [ ! -e "$scratch/plain.digest" ]; then
	start plain
	load plain
	stop plain
fi

start preload
prove_mapped "$pid"
preloaded redis-benchmark -s "$scratch/redis.sock" -q -n 10000 -c 20 -P 8 -r 20000 -d 200 --threads 2 \
	-t ping,set,get,incr,lpush,rpush,lpop,rpop,sadd,hset,spop,zadd,lrange_100,lrange_600,mset \
	>"$scratch/benchmark" 2>&1 || fail "redis-benchmark: $(cat "$scratch/benchmark")"
! grep -iE '(^|[^a-z])(error|err)[^a-z]' "$scratch/benchmark" || fail "redis-benchmark saw errors"
echo "  redis-benchmark: $(tr '\r' '\n' <"$scratch/benchmark" | grep -c 'requests per second') tests without an error"
cli FLUSHALL >/dev/null
cli FLUSHALL ASYNC >/dev/null

load preload
compare_output digest
echo "  same: $(sed -n 2p "$scratch/preload.digest") keys, by digest"

[ "$(cli MEMORY USAGE string:29999)" -gt 0 ] || fail "MEMORY USAGE"
cli MEMORY STATS | grep -q peak.allocated || fail "MEMORY STATS"
cli MEMORY DOCTOR >"$scratch/doctor" || fail "MEMORY DOCTOR"
cli MEMORY PURGE | grep -q OK || fail "MEMORY PURGE"
cli MEMORY MALLOC-STATS >"$scratch/malloc-stats" || fail "MEMORY MALLOC-STATS"
[ "$(cli INFO memory | tr -d '\r' | sed -n 's/^used_memory://p')" -gt 1000000 ] || fail "INFO memory"
echo "  MEMORY commands work"

save preload
redis-check-rdb "$scratch/preload/dump.rdb" >"$scratch/check" || fail "redis-check-rdb: $(cat "$scratch/check")"
stop preload
start preload
prove_mapped "$pid"
cli DEBUG DIGEST >"$scratch/preload.digest"
cli DBSIZE >>"$scratch/preload.digest"
compare_output digest
stop preload
echo "  same: data set after BGSAVE and restart"
