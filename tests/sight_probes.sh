#!/bin/bash
# The slow paths have probes whose notes debuggers and tracers read, with arguments that are there; and a program's
# own figures as JSON agree with what is seen from outside.
set -u
# shellcheck source-path=SCRIPTDIR source=shared/sight.bash
. "$(dirname "$0")/shared/sight.bash"

for probe in refill drain slab_new slab_free purge; do
	readelf -n "$build/libcpuslab.so" | grep -A 3 'Provider: cpuslab' | grep -q "Name: $probe$" || fail "no probe $probe"
done
if command -v gdb >/dev/null && gdb -batch -ex 'info probes stap' 2>&1 | grep -q 'No probes'; then
	gdb -nx -batch -ex 'set breakpoint pending on' -ex "set environment LD_PRELOAD $build/libcpuslab.so" \
		-ex 'break main' -ex run -ex 'break -probe-stap cpuslab:refill' -ex continue \
		-ex 'printf "refill %s %d\n", $_probe_arg0, $_probe_arg1' -ex kill \
		"$build/tests/target_leak" >"$work/gdb" 2>&1
	grep -Eq '^refill malloc-[0-9]+ [1-9][0-9]*$' "$work/gdb" || fail "the probe's arguments: $(tail -n 20 "$work/gdb")"
else
	echo "there is no gdb that knows probes: their arguments were not tried"
fi

python=/usr/bin/python3
[ -x $python ] || python=python3
LD_PRELOAD=$build/libcpuslab.so $python - "$cpuslab" <<'PYTHON' || fail "cpuslab_stats_json"
import ctypes, json, os, subprocess, sys
keep = [ctypes.create_string_buffer(3000) for _ in range(5000)]
library = ctypes.CDLL(None, use_errno=True)
reader, writer = os.pipe()
assert os.set_blocking(writer, False) is None
import fcntl
fcntl.fcntl(writer, 1031, 1 << 20)  # F_SETPIPE_SZ
assert library.cpuslab_stats_json(writer) == 0
own = json.loads(os.read(reader, 1 << 20))
environment = dict(os.environ)
del environment["LD_PRELOAD"]
seen = json.loads(subprocess.check_output([sys.argv[1], "info", "--json", str(os.getpid())], env=environment))
mine = {c["name"]: c for c in own["caches"]}
theirs = {c["name"]: c for c in seen["caches"]}
assert mine["malloc-3072"]["live"] >= 5000
assert abs(mine["malloc-3072"]["live"] - theirs["malloc-3072"]["live"]) <= 50
assert mine["malloc-3072"]["slabs"] * 0.9 <= theirs["malloc-3072"]["slabs"]
assert library.cpuslab_stats_json(-1) == -1 and ctypes.get_errno() == 9
PYTHON
exit 0
