#!/bin/bash
# SPDX-License-Identifier: MIT
# libfaketime replaces clock_gettime and its like by functions that allocate.  Preloaded before and after the library, date,
# python3 and a server see the time that it tells, with the common and the multithreaded of its libraries.  First a program
# with a clock_gettime of its own that allocates whenever it is called.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "${CPUSLAB_BUILD:-$here/../build}" && pwd)
skip() {
	echo "skipped: $*"
	exit 77
}
[ -z "${CPUSLAB_SANITIZE:-}" ] || skip "a sanitizer build"
folder=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null; rm -rf "$folder"' EXIT
failed=0 tried=0

cat >"$folder/clock.c" <<'C'
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
static unsigned long calls;
int clock_gettime(clockid_t clock, struct timespec *now)
{
	void *volatile object = malloc(5000 + ++calls % 100);
	(void)clock;
	free(object);
	*now = (struct timespec){.tv_sec = 1};
	return 0;
}
int main(void)
{
	for (int turn = 0; turn < 4; turn++, usleep(110000))
		for (int i = 0; i < 100000; i++)
			free(malloc((size_t)i % 5000));
	printf("%lu\n", calls);
	return 0;
}
C
cc -O1 -fno-builtin -o "$folder/clock" "$folder/clock.c"
for options in "" vcpu:slot hardened:1 decay:0 profile:64K; do
	calls=$(CPUSLAB_OPTIONS=$options LD_PRELOAD=$build/libcpuslab.so "$folder/clock") || calls="status $?"
	[ "$calls" = 0 ] || {
		echo "a clock of the program's own, options '$options': called by the library: $calls"
		failed=1
	}
done
[ "$failed" -eq 0 ] || exit 1
command -v python3 >/dev/null || skip "no python3"
command -v curl >/dev/null || skip "no curl"

# expect WHAT SAID: says so if it is not the year that libfaketime tells.
expect() {
	tried=$((tried + 1))
	[ "$2" = 2001 ] || {
		echo "$1: '$2', not 2001"
		failed=1
	}
}

# serve: starts a server whose answers have the date in their head, and asks it.
serve() {
	local port="" i
	: >"$folder/log" # of the one before
	LD_PRELOAD=$1 FAKETIME="@2001-06-15 12:00:00" python3 -u -m http.server 0 --bind 127.0.0.1 --directory "$folder" \
		>"$folder/log" 2>&1 &
	server=$!
	for ((i = 0; i < 200; i++)); do
		port=$(sed -n 's/.* port \([0-9]*\) .*/\1/p' "$folder/log")
		[ -z "$port" ] || break
		sleep 0.1
	done
	curl -sI --max-time 20 "http://127.0.0.1:${port:-1}/" | sed -n 's/^Date: .* \(20[0-9][0-9]\) .*/\1/p'
	kill "$server" 2>/dev/null || true
	wait "$server" 2>/dev/null || true
	server=
}

for library in /usr/lib/*/faketime/libfaketime.so.1 /usr/lib/*/faketime/libfaketimeMT.so.1; do
	[ -e "$library" ] || skip "no libfaketime"
	for order in "$library $build/libcpuslab.so" "$build/libcpuslab.so $library"; do
		export FAKETIME="@2001-06-15 12:00:00" FAKETIME_DONT_RESET=1
		expect "date, $order" "$(LD_PRELOAD=$order date +%Y 2>&1)"
		expect "python3, $order" "$(LD_PRELOAD=$order python3 -c '
import datetime, threading
keep = []
def work():
    for i in range(3000):
        keep.append(bytearray(i * 7))
        datetime.datetime.now()
threads = [threading.Thread(target=work) for _ in range(3)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(datetime.datetime.now().year)' 2>&1)"
		expect "a server, $order" "$(serve "$order")"
	done
done
echo "$tried tried"
exit $failed
