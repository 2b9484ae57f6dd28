#!/bin/bash
# A process whose threads allocate forks all the time: the parent, its children and theirs are read all the while, at
# whatever instant they are; what is told of any adds up, or the message says what became of the process; and all
# of them go on as if nobody looked.
set -u
# shellcheck source-path=SCRIPTDIR source=shared/sight.bash
. "$(dirname "$0")/shared/sight.bash"

python=/usr/bin/python3
[ -x $python ] || python=python3
begin "$build/tests/target_forker" 4 500

# ---- every process by itself -----------------------------------------------------------------------------------------

cat >"$work/read.py" <<'PYTHON'
import json, os, re, subprocess, sys, time
cpuslab, top = sys.argv[1], int(sys.argv[2])

def family():
    """The process's descendants, by their parents."""
    parents = {}
    for name in os.listdir("/proc"):
        try:
            if name.isdigit():
                parents[int(name)] = int(open(f"/proc/{name}/stat", errors="replace").read().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            pass
    found = [top]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found[1:]

def read(pid):
    """Whether it could be read; then everything of it adds up."""
    done = subprocess.run([cpuslab, "info", "--json", "-e", str(pid)], capture_output=True, text=True)
    if done.returncode:
        told = re.match(rf"cpuslab info: process {pid}( \(target_forker\))?: (.*)\n", done.stderr)
        assert done.returncode == 1 and told and not done.stdout, done
        trouble.setdefault(told[2], 0)
        trouble[told[2]] += 1
        return False
    seen = json.loads(done.stdout)
    parts = seen["bytes"]
    mapped = parts.pop("mapped")
    assert sum(parts.values()) == mapped, (sum(parts.values()), mapped)
    for cache in seen["caches"]:
        objects = cache["live"] + cache["in_vcpus"] + cache["in_depot"] + cache["free_in_slabs"]
        assert objects == cache["objects"], cache
        assert objects * cache["size"] + cache["slack_bytes"] == cache["space_bytes"], cache
    # Four threads with 500 each.  Children have copies of these, some of their own, and what lay in magazines that
    # a thread of the parent had in hand at the fork: nobody can give that back there.
    live = sum(cache["live"] for cache in seen["caches"])
    assert 1000 <= live and (live <= 5000 or pid != top), (pid == top, live)
    return True

children, trouble, end = 0, {}, time.monotonic() + 60
while children < 40:
    assert time.monotonic() < end, (children, trouble)
    assert read(top), trouble
    children += sum(map(read, family()))
print(f"{children} of children; otherwise {trouble}")
PYTHON
$python "$work/read.py" "$cpuslab" "$pid" || fail "the figures of a family"

# ---- the other commands ------------------------------------------------------------------------------------------------

"$cpuslab" map "$pid" >"$work/map" && [ "$(wc -l <"$work/map")" -ge 2 ] || fail "map"
"$cpuslab" top --once --delay=0.2 "$pid" | grep -q '^ Active / Total Objects' || fail "top"
# Children have copies of the profile that runs in their parent, and of its samples.
"$cpuslab" profile --seconds=0.5 --interval=4K --keep --format=top "$pid" >"$work/top" || fail "profile"
grep -q ' churn at forker\.c:[0-9]*$' "$work/top" || fail "not churn: $(cat "$work/top")"
$python "$work/read.py" "$cpuslab" "$pid" || fail "the figures of a family with a profile"
"$cpuslab" info target_forker >"$work/table" 2>"$work/error" ||
	grep -q "[0-9]* processes called target_forker run on cpuslab; name one by its pid: .*$pid (target_forker)" "$work/error" ||
	grep -q '^cpuslab info: process [0-9]* ' "$work/error" || fail "by name: $(cat "$work/error")"
kill -0 "$pid" || fail "it has died of it"
exit 0
