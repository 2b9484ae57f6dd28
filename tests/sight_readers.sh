#!/bin/bash
# What others' tools make of our profiles and probes: pprof's web page, jeprof and speedscope name the function that
# leaks, from profiles taken from outside and by the program itself; bpftrace finds the probes, and where the kernel
# lets it, counts them with their arguments.  A tool that is not here is left out, and said so.
set -u
# shellcheck source-path=SCRIPTDIR source=shared/sight.bash
. "$(dirname "$0")/shared/sight.bash"
cd "$work" || exit 2

CPUSLAB_OPTIONS=profile:16K,profile_signal:12 CPUSLAB_PROFILE=$work/own begin "$build/tests/target_leak"
leak=$pid
eventually leaked_since 0
"$cpuslab" profile --output=leak.pb "$leak" || fail "no profile"
"$cpuslab" profile --format=heap "$leak" >leak.heap || fail "no text"
kill -USR2 "$leak"
eventually test -s "own.$leak.1.pb"

# ---- go tool pprof -http --------------------------------------------------------------------------------------------

if command -v go >/dev/null && command -v curl >/dev/null; then
	export PPROF_TMPDIR=$work GOTOOLCHAIN=local
	# It says nowhere which port it took of those that are free.
	port=$(python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])' 2>/dev/null) ||
		port=$((20000 + $$ % 10000))
	go tool pprof -no_browser -http="127.0.0.1:$port" leak.pb >pprof.log 2>&1 &
	begun+=($!)
	disown $!
	eventually curl -sf -o top.html "http://127.0.0.1:$port/ui/top"
	# What answers may be a child of it, which outlives it.
	mapfile -t -O ${#begun[@]} begun < <(sed -n "s/^\([0-9]*\) (pprof) . $! .*/\1/p" /proc/[0-9]*/stat 2>/dev/null)
	grep -q append_to_log top.html || fail "pprof -http: no function in its table: $(cat pprof.log)"
	# The first of the functions in the data of the flame graph.
	curl -sf "http://127.0.0.1:$port/ui/flamegraph" | grep -q append_to_log || fail "pprof -http: no flame graph"
else
	echo "there is no go or no curl: pprof -http was not tried"
fi

# ---- jeprof ----------------------------------------------------------------------------------------------------------

tried=
for jeprof in jeprof google-pprof; do
	command -v $jeprof >/dev/null || continue
	tried=1
	$jeprof --text "$build/tests/target_leak" leak.heap >$jeprof.text 2>$jeprof.log || fail "$jeprof: $(cat $jeprof.log)"
	# The line below the total: megabytes, share, sum, with callees, share, name.
	grep -A 1 '^Total:' $jeprof.text | grep -q ' append_to_log$' || fail "$jeprof shows: $(cat $jeprof.text)"
done
[ -n "$tried" ] || echo "there is no jeprof: it was not tried"

# ---- speedscope: its page in a browser, as its own command opens it ---------------------------------------------------

page=$(npm root --global 2>/dev/null)/speedscope/dist/release/index.html
if [ -e "$page" ] && command -v chromium >/dev/null; then
	# A look at the page, which may not have come to its table yet.  Local functions have names where their program
	# was looked into, from outside.
	shows() {
		timeout 60 chromium --headless --no-sandbox --disable-gpu --user-data-dir="$work/chromium" \
			--allow-file-access-from-files --virtual-time-budget=8000 --dump-dom \
			"file://$page#localProfilePath=$work/load.js&view=sandwich" >speedscope.html 2>/dev/null
		grep -q "$1" speedscope.html
	}
	for profile in leak.pb "own.$leak.1.pb"; do
		printf 'speedscope.loadFileFromBase64("%s", "%s")' "$profile" "$(base64 -w 0 "$profile")" >load.js
		eventually shows '>append_to_log<\|>main<\|target_leak+0x'
	done
	grep -q '>__libc_start_main<\|libc.so.6+0x' speedscope.html || fail "speedscope: no names of libraries"
else
	echo "there is no speedscope or no chromium: it was not tried"
fi

# ---- bpftrace ---------------------------------------------------------------------------------------------------------

if command -v bpftrace >/dev/null && [ "$(id -u)" -eq 0 ]; then
	bpftrace -l "usdt:$build/libcpuslab.so:cpuslab:*" >probes 2>/dev/null
	for probe in refill drain slab_new slab_free purge; do
		grep -q ":cpuslab:$probe$" probes || fail "bpftrace finds no $probe: $(cat probes)"
	done
	trace() {
		timeout 20 bpftrace -p "$leak" -e 'usdt:*:cpuslab:refill { @[str(arg0)] = count(); } interval:ms:700 { exit(); }'
	}
	# A tracing file system of our own, where containers have none.
	export -f trace
	export leak
	if unshare -m bash -c 'mount -t tracefs none /sys/kernel/tracing; trace' >trace 2>&1 || grep -q '^@' trace; then
		grep -q '^@\[malloc-[0-9]*\]: [1-9]' trace || fail "bpftrace counts nothing: $(cat trace)"
	else
		echo "this kernel does not let bpftrace attach: $(tail -n 1 trace)"
	fi
else
	echo "there is no bpftrace, or no right to use it: it was not tried"
fi
exit 0
