#!/bin/bash
# `cpuslab info` reads running programs that know nothing of it: live threads, static ones, ones that die or
# execute another program meanwhile, real ones; and it says what is wrong where it may not or cannot.
set -u
# shellcheck source-path=SCRIPTDIR source=shared/sight.bash
. "$(dirname "$0")/shared/sight.bash"

python=/usr/bin/python3
[ -x $python ] || python=python3

# ---- figures add up while threads run ----------------------------------------------------------------------

cat >"$work/add.py" <<'PYTHON'
import json, sys
wanted, slack = int(sys.argv[1]), int(sys.argv[2])
seen = json.load(sys.stdin)
parts = seen["bytes"]
mapped = parts.pop("mapped")
assert sum(parts.values()) == mapped, (sum(parts.values()), mapped)
live = 0
for cache in seen["caches"]:
    objects = cache["live"] + cache["in_vcpus"] + cache["in_depot"] + cache["free_in_slabs"]
    assert objects == cache["objects"], cache
    assert objects * cache["size"] + cache["slack_bytes"] == cache["space_bytes"], cache
    assert cache["full_slabs"] + cache["partial_slabs"] + cache["empty_slabs"] == cache["slabs"], cache
    live += cache["live"]
# The page layer counts pages, the caches count slabs: what is neither is on its way.
assert parts["moving"] <= 1 << 20 if slack else parts["moving"] == 0, parts
# Stacks of threads, stdio and the dynamic linker have some objects too.
assert wanted - slack <= live <= wanted + slack + 64, (wanted, live)
assert seen["unsettled"] == 0 or slack, seen["unsettled"]
PYTHON
figures() {
	"$cpuslab" info --json -e "$pid" >"$work/json" || fail "no figures"
	$python "$work/add.py" "$@" <"$work/json" || fail "they do not add up: $(head -c 2000 "$work/json")"
}

begin "$build/tests/target_crowd" 8 1000
for _ in 1 2 3 4 5 6 7 8 9 10; do
	# In flight: what is read of a vCPU a little later than of the slabs.
	figures 8008 2000
done

# ---- at rest they are exact, and resident is what the kernel says --------------------------------------------

kill -USR1 "$pid"
eventually lines 2
figures 8008 0
cat >"$work/resident.py" <<'PYTHON'
import json, re, sys
# The heap is the only mapping of its kind: private, anonymous, and much lower than libraries and stacks.
heap, inside = 0, False
for line in open(f"/proc/{sys.argv[1]}/smaps"):
    start = re.match(r"([0-9a-f]+)-[0-9a-f]+ (\S+)", line)
    if start:
        inside = int(start[1], 16) < 0x500000000000 and int(start[1], 16) >= 1 << 32
    elif line.startswith("Rss:") and inside:
        heap += int(line.split()[1]) << 10
told = json.load(open(sys.argv[2]))["resident"]
told = told["heap"] + told["metadata"]
assert told == heap, (told, heap)
PYTHON
resident() {
	$python "$work/resident.py" "$pid" "$work/json" || fail "resident is not what smaps says"
}
resident
crowd=$pid

# Debugged, with the marks of a profile in the magazines, and some hundred objects between guard pages, which are
# no cache's.
at_rest() {
	eventually lines 1
	kill -USR1 "$pid"
	eventually lines 2
	figures "$@"
	resident
	kill -KILL "$pid"
}
CPUSLAB_DEBUG=FZPU begin "$build/tests/target_crowd" 2 300
at_rest 602 0
CPUSLAB_OPTIONS=reserve:0 begin "$build/tests/target_crowd" 2 300
at_rest 602 0
CPUSLAB_OPTIONS=profile:4K begin "$build/tests/target_crowd" 2 300
at_rest 602 0
CPUSLAB_OPTIONS=guard:100 begin "$build/tests/target_crowd" 2 300
at_rest 602 200
# Magazine and linked engine by turns; then large objects, and those with mappings of their own.
begin "$build/tests/target_caches" 300 4
figures 300 0
resident
LD_PRELOAD=$build/libcpuslab.so $python -c 'import time
keep = [bytearray(n) for n in (5000, 100000, 300000, 1 << 20, 3 << 20, 40 << 20, 200 << 20)]
print("up", flush=True); time.sleep(600)' >"$work/python" &
pid=$!
disown "$pid"
begun+=("$pid")
eventually test -s "$work/python"
"$cpuslab" info --json -e "$pid" >"$work/json" || fail "no figures"
resident
$python -c 'import json, sys
parts = json.load(sys.stdin)["bytes"]
mapped = parts.pop("mapped")
assert sum(parts.values()) == mapped and parts["large"] + parts["huge"] >= 244 << 20, parts' <"$work/json" ||
	fail "large objects: $(head -c 600 "$work/json")"
kill -KILL "$pid"
rm "$work/python"

# ---- a run that grows without a lock is large, and what is kept for it is free -------------------------------

begin "$build/tests/target_grower"
vector=$(cat "$work/lines")
"$cpuslab" info --json "$pid" >"$work/json" || fail "no figures"
grep -q '"large": '"$vector"',.*"moving": 0,' "$work/json" ||
	fail "a vector of $vector bytes: $(grep '"bytes"' "$work/json")"
kill -KILL "$pid"
pid=$crowd

# ---- the forms ------------------------------------------------------------------------------------------------

"$cpuslab" info "$pid" | head -1 | grep -q '^Name  *Objects Objsize  *Space Slabs/Part/Cpu  O/S O %Fr %Ef Flg$' ||
	fail "the head of the table"
[ "$("$cpuslab" info "$pid" 'malloc-51*' | tail -n +2 | awk '{print $1}')" = malloc-512 ] || fail "selection"
"$cpuslab" info -S -N 2 "$pid" | awk 'NR == 2 && $1 == "" { exit 1 } END { exit NR != 3 }' || fail "-S -N 2"
"$cpuslab" info -B -S "$pid" | awk 'NR > 2 && $4 > last { exit 1 } { last = $4 }' || fail "-S does not sort"
"$cpuslab" info -B -S -i "$pid" | awk 'NR > 2 && $4 < last { exit 1 } { last = $4 }' || fail "-i does not invert"
"$cpuslab" info -r "$pid" malloc-512 | grep -q '^Slabcache: malloc-512 ' || fail "-r"
"$cpuslab" info -T "$pid" | grep -q '^= mapped ' || fail "-T"
"$cpuslab" info -T "$pid" | head -n 1 | grep -q ', \(1 vCPU\|[0-9]* vCPUs\) used$' || fail "the head of -T"
"$cpuslab" info -D -A "$pid" | grep -q 'AllocMiss' || fail "-D"
# A node's name ends where its numbers do.
"$cpuslab" info -n "$pid" | awk 'NR == 2 { end = index($0, "N0") + 1 } NR == 3 { exit $2 !~ /^[0-9]+$/ || length($1) >= end ||
	substr($0, end, 1) !~ /[0-9]/ || substr($0, end + 1, 1) ~ /[0-9]/ } END { if (NR < 3) exit 1 }' || fail "info -n"
"$cpuslab" info --prometheus "$pid" >"$work/metrics" || fail "--prometheus"
$python - "$work/metrics" <<'PYTHON' || fail "not the text exposition format"
import re, sys
types, done, current = {}, set(), None
for line in open(sys.argv[1]):
    if line.startswith("# TYPE"):
        _, _, name, kind = line.split()
        assert name not in types and kind in ("gauge", "counter")
        types[name] = kind
    elif not line.startswith("#"):
        name = re.fullmatch(r'([a-z_]+)\{([a-z_]+="(?:[^"\\\n]|\\.)*",?)+\} \d+\n', line)[1]
        assert name in types and (name == current or name not in done), line
        assert types[name] != "counter" or name.endswith("_total")
        current = name
        done.add(name)
assert len(done) >= 10
PYTHON

# procps' slabtop reads the text in place of the kernel's, where this machine lets us put it there.
"$cpuslab" info --slabinfo "$pid" >"$work/slabinfo" || fail "--slabinfo"
if command -v slabtop >/dev/null && unshare -m true 2>/dev/null; then
	unshare -m sh -c "mount --bind '$work/slabinfo' /proc/slabinfo && slabtop -o -s c" >"$work/slabtop" 2>&1 ||
		fail "slabtop: $(cat "$work/slabtop")"
	grep -q ' malloc-512' "$work/slabtop" || fail "slabtop shows: $(cat "$work/slabtop")"
else
	echo "slabtop was not tried: it is not here, or the text cannot be put in place of /proc/slabinfo"
fi

# ---- a static program; caches that share their memory -----------------------------------------------------------

library='' begin "$build/tests/target_crowd_static" 2 100
figures 202 300
begin "$build/tests/target_caches" 100 2
"$cpuslab" info -a "$pid" | grep -q '^sort_[0-9]* .*<- .*sort_' || fail "aliases"
"$cpuslab" info "$pid" sort_1 | tail -n 1 | awk '{ exit !($2 == 1 && $3 == 48) }' || fail "sort_1"

# Those of the linked engine too: one object is in use, whatever waits on a vCPU's list.
"$cpuslab" info "$pid" sort_15 | tail -n 1 | awk '{ exit !($2 == 1 && $NF == "l") }' || fail "sort_15"
"$cpuslab" info -T "$pid" | awk '$1 == "moving" { exit $2 != 0 }' || fail "slabs of linked caches are not counted"

# ---- a picture -----------------------------------------------------------------------------------------------------

LC_ALL=C "$cpuslab" map "$pid" | awk 'NR == 2 && $2 + 0 > 0 && length($4) == 64 { found = 1 } END { exit !found }' || fail "map"
"$cpuslab" map --svg="$work/map.svg" "$pid" && $python - "$work/map.svg" "$pid" <<'PYTHON' || fail "map --svg"
import re, sys, xml.dom.minidom
picture = xml.dom.minidom.parse(sys.argv[1])
texts = [text.firstChild.data for text in picture.getElementsByTagName('text')]
assert texts[0].startswith('Heap of process %s (' % sys.argv[2]), texts[0]
for wanted in ('slabs: .*', 'large objects: .*', 'resident, .*', 'not resident', 'offset in the block', 'block', 'in use', '0', '2 MiB',
               '[0-9a-f]{14}', '[0-9]+%'):
    assert any(re.fullmatch(wanted, text) for text in texts), (wanted, texts)
width, height = (int(picture.documentElement.getAttribute(name)) for name in ('width', 'height'))
for text in picture.getElementsByTagName('text'):
    assert int(text.getAttribute('x')) + 6 * len(text.firstChild.data) <= width, text.toxml()
cells = [box for box in picture.getElementsByTagName('rect') if box.firstChild]
assert len(cells) % 64 == 0 and len(cells) >= 64 and re.search('slab, [0-9]+% in use', cells[0].toxml() + cells[-1].toxml()), len(cells)
PYTHON
if "$cpuslab" map --png="$work/map.png" "$pid" 2>"$work/error"; then
	$python - "$work/map.png" "$work/map.svg" <<'PYTHON' || fail "map --png"
import re, struct, sys, zlib
image = open(sys.argv[1], "rb").read()
assert image[:8] == b"\x89PNG\r\n\x1a\n"
at, data = 8, b""
while at < len(image):
    length, kind = struct.unpack(">I4s", image[at:at + 8])
    part = image[at + 8:at + 8 + length]
    assert struct.unpack(">I", image[at + 8 + length:at + 12 + length])[0] == zlib.crc32(kind + part)
    if kind == b"IHDR":
        width, height, depth, colour = struct.unpack(">IIBB", part[:10])
    data += part if kind == b"IDAT" else b""
    at += 12 + length
assert (depth, colour) == (8, 2)
data = zlib.decompress(data)
assert len(data) == height * (3 * width + 1)
lines, before = [], bytes(3 * width)
for y in range(height):
    kind, line = data[y * (3 * width + 1)], bytearray(data[y * (3 * width + 1) + 1:(y + 1) * (3 * width + 1)])
    for i in range(3 * width):
        left, up, corner = line[i - 3] if i > 2 else 0, before[i], before[i - 3] if i > 2 else 0
        paeth = min((left, up, corner), key=lambda value: abs(left + up - corner - value))
        line[i] = line[i] + (0, left, up, (left + up) // 2, paeth)[kind] & 255
    lines.append(before := bytes(line))
# The same picture as the SVG: its boxes' colours, and something written where it has text.
svg = open(sys.argv[2]).read()
assert (width, height) == tuple(int(re.search(r'%s="(\d+)"' % name, svg)[1]) for name in ('width', 'height')), (width, height)
pixel = lambda x, y: lines[y][3 * x:3 * x + 3].hex()
boxes = re.findall(r'<rect x="(\d+)" y="(\d+)" width="(\d+)" height="\d+" stroke="#ddd" fill="#(\w+)"', svg)
assert len(boxes) >= 64 + 18
for x, y, side, fill in boxes[:2000]:
    assert pixel(int(x) + int(side) // 2, int(y) + int(side) // 2) == fill, (x, y, fill)
for x, y, text in re.findall(r'<text x="(\d+)" y="(\d+)"[^>]*>([^<]*)', svg):
    written = sum(pixel(int(x) + i, int(y) - j) == "222222" for i in range(6 * len(text)) for j in range(10))
    assert written >= 4 * len(text.replace(" ", "")), (text, written)
PYTHON
else
	grep -q 'built without libpng' "$work/error" || fail "$(cat "$work/error")"
	echo "this command draws no PNG"
fi

# ---- magazines with any number of objects, slabs of both engines, and names that are no text -------------------------

begin "$build/tests/target_odd"
"$cpuslab" info "$pid" 'held_*' | awk '
	NR > 1 { split($1, held, "_"); if ($2 != held[2]) { print; wrong = 1 } }
	END { exit wrong || NR != 42 }' || fail "objects of held_N that are not N"
# 4 MB of them: all of their pages are there, and in use.
"$cpuslab" info -n "$pid" chained | awk 'NR == 3 && $2 >= 970 { found = 1 } END { exit !found }' || fail "chained has no pages"
LC_ALL=C "$cpuslab" map "$pid" | awk 'NR > 1 { used += $2 * 20971.52 } END { exit used < 4000000 }' ||
	fail "the map does not show what is in linked slabs: $(LC_ALL=C "$cpuslab" map "$pid")"
"$cpuslab" info --json "$pid" >"$work/json" && $python -c 'import json, sys
seen = json.load(open(sys.argv[1], encoding="utf-8"))
assert seen["process"] == "odd ?(?[2J??", seen["process"]
assert "odd_??[2J" in [cache["name"] for cache in seen["caches"]]' "$work/json" ||
	fail "names in JSON"
"$cpuslab" info --prometheus "$pid" | $python -c 'import sys; sys.stdin.buffer.read().decode("utf-8")' ||
	fail "names in the text exposition format"
"$cpuslab" info -T "$pid" | grep -q $'\e' && fail "the name of a process controls the terminal"

for mode in auto slot; do
	CPUSLAB_OPTIONS=vcpu:$mode begin "$build/tests/target_odd"
	"$cpuslab" info "$pid" lowered | awk 'NR == 2 { seen = $2 } END { exit seen != 5 }' ||
		fail "$mode, a magazine from before the limit was lowered: $("$cpuslab" info "$pid" lowered)"
done

# ---- what guarding does ------------------------------------------------------------------------------------------------

CPUSLAB_OPTIONS=guard:1,guard_cost:0,guard_second:0 begin "$build/tests/target_crowd" 1 50
"$cpuslab" info -T "$pid" | grep -q '^Guarded: [1-9][0-9]*, .* Live: [1-9][0-9]* in 512 slots, [1-9][0-9]* bytes$' ||
	fail "guarded: $("$cpuslab" info -T "$pid")"
"$cpuslab" info --json "$pid" | $python -c 'import json, sys
guarded = json.load(sys.stdin)["guarded"]
assert guarded["slots"] == 512 and guarded["picked"] >= guarded["live"] >= 1' || fail "guarded, in JSON"
"$cpuslab" info --prometheus "$pid" | grep -q '^cpuslab_guarded_total{.*} [1-9]' || fail "guarded, for Prometheus"

# What the system does not say is unknown, not zero.
(
	export LD_PRELOAD=$build/tests/libno_residents.so
	"$cpuslab" info -T "$pid" | grep -q '^resident *unknown ' || fail "info -T"
	"$cpuslab" info --json "$pid" | $python -c 'import json, sys; assert json.load(sys.stdin)["resident"]["heap"] is None' || fail "--json"
	"$cpuslab" top --once --delay=0.05 "$pid" | grep -q '^ Used / Resident / Mapped : [0-9]*K / unknown / [0-9]*K$' || fail "top"
	"$cpuslab" map --svg="$work/map.svg" "$pid" 2>"$work/error" || fail "map"
	grep -q 'does not say which pages are resident' "$work/error" || fail "map: $(cat "$work/error")"
	grep -q '% resident at most: the system does not say<' "$work/map.svg" || fail "the map's title"
) || exit 1

# ---- what goes wrong outside -------------------------------------------------------------------------------------------

"$cpuslab" info "$pid" >/dev/full 2>"$work/error" && fail "nothing could be written"
grep -q 'standard output: No space left on device' "$work/error" || fail "$(cat "$work/error")"
for form in svg png; do
	"$cpuslab" map --$form=/dev/full "$pid" 2>"$work/error" && fail "no $form could be written"
	grep -q '/dev/full: \(No space left\|.*built without\|.*[wW]rit\)' "$work/error" || fail "$form: $(cat "$work/error")"
	[ -c /dev/full ] || fail "it removed a device"
	"$cpuslab" map --$form="$work/none/map" "$pid" 2>"$work/error" && fail "there is no such folder"
	grep -q 'none/map: ' "$work/error" || fail "$form: $(cat "$work/error")"
done
# On a disk that is full the older picture stays, and no part of the new one.
mkdir "$work/pictures"
echo before >"$work/pictures/map.svg"
(trap '' XFSZ && ulimit -f 1 && "$cpuslab" map --svg="$work/pictures/map.svg" "$pid" 2>&1) |
	grep -q 'map.svg: File too large$' || fail "a full disk"
[ "$(cat "$work/pictures"/*)" = before ] || fail "it left $(ls "$work/pictures")"
[ "$("$cpuslab" map --svg=- "$pid" | head -c 4)" = '<svg' ] || fail "no picture to standard output"
{ "$cpuslab" help && "$cpuslab" info -T "$pid" && "$cpuslab" info -n "$pid"; } >"$work/ends" || fail "help, -T or -n"
! grep -n ' $' "$work/ends" || fail "the lines above end with a space"
for command in run info top export profile decode map bench options version; do
	"$cpuslab" $command --help | grep -q "^usage: cpuslab $command\( \|$\)" || fail "$command --help"
	"$cpuslab" $command --wrong >/dev/null 2>"$work/error"
	[ $? -eq 2 ] || fail "$command --wrong was taken"
	head -n 1 "$work/error" | grep -q "^cpuslab $command: .*--wrong" || fail "what is wrong with $command: $(cat "$work/error")"
done
# A file's name without a folder is that file, also for children in other folders.
(cd "$build" && ./cpuslab run --library libcpuslab.so -- sh -c 'cd / && sed -n "s,.*/,,p" /proc/self/maps') \
	>"$work/run" 2>"$work/error" || fail "run --library: $(cat "$work/error")"
grep -q '^libcpuslab' "$work/run" && [ ! -s "$work/error" ] || fail "a bare name is not preloaded: $(cat "$work/error")"
for library in --library\ "$work/none.so" --library="$work/none.so"; do
	# shellcheck disable=SC2086
	"$cpuslab" run $library -- true 2>"$work/error"
	[ $? -eq 1 ] && grep -q 'none.so: No such file' "$work/error" || fail "no library: $(cat "$work/error")"
done
"$cpuslab" run --library 2>"$work/error"
[ $? -eq 2 ] && grep -q "^cpuslab run: option '--library' requires an argument" "$work/error" || fail "--library alone: $(cat "$work/error")"
"$cpuslab" run decay:0 2>"$work/error"
[ $? -eq 2 ] && grep -q '^cpuslab run: no program to run' "$work/error" || fail "run without a program: $(cat "$work/error")"
"$cpuslab" run -- "$work/none" 2>"$work/error"
[ $? -eq 127 ] || fail "no program: $(cat "$work/error")"
# Nor where its message can go nowhere.
"$cpuslab" run -- "$work/none" 2>&-
[ $? -eq 127 ] || fail "no program, and no standard error"
"$cpuslab" info $((pid + (1 << 32))) 2>/dev/null && fail "a number that is no pid was taken for one"
"$cpuslab" info -N many "$pid" 2>"$work/error"
[ $? -eq 2 ] && [ "$(cat "$work/error")" = "cpuslab info: --lines takes a whole number, not 'many'" ] ||
	fail "-N many: $(cat "$work/error")"
kill -KILL "$pid"

# ---- processes that do not stay ------------------------------------------------------------------------------------

LD_PRELOAD=$build/libcpuslab.so "$build/tests/target_changer" &
pid=$!
begun+=("$pid")
seen=0
for _ in $(seq 100); do
	if "$cpuslab" info --json "$pid" >"$work/json" 2>"$work/error"; then
		[ "$(tail -n 1 "$work/json")" = '}' ] || fail "half a report"
		seen=$((seen + 1))
	else
		[ $? -eq 1 ] && grep -q "^cpuslab info: process $pid" "$work/error" || fail "$(cat "$work/error")"
	fi
done
[ "$seen" -gt 0 ] || fail "it was never there"
kill -KILL "$pid"
wait "$pid" 2>/dev/null
"$cpuslab" info "$pid" 2>"$work/error" && fail "it is dead"
grep -q 'no such process' "$work/error" || fail "$(cat "$work/error")"

# ---- what cannot be read ---------------------------------------------------------------------------------------------

begin "$build/tests/target_crowd" 1 10
if [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null; then
	cp "$cpuslab" "$work/cpuslab" && chmod 755 "$work" "$work/cpuslab"
	setpriv --reuid 65534 --clear-groups "$work/cpuslab" info "$pid" 2>"$work/error" && fail "anyone may read it"
	grep -q 'belongs to user 0.*sudo.*setcap' "$work/error" || fail "$(cat "$work/error")"
	# What Yama's setting says, where the right to read is missing: a root without it, and a setting in place of the
	# system's own.
	begin setpriv --reuid 65534 --clear-groups "$build/tests/target_crowd" 1 10
	refused() {
		unshare -m sh -c 'mount -t tmpfs none /proc/sys/kernel && mkdir /proc/sys/kernel/yama &&
			echo $1 >/proc/sys/kernel/yama/ptrace_scope &&
			exec setpriv --bounding-set -sys_ptrace --inh-caps -sys_ptrace "$2" info "$3"' \
			- "$1" "$work/cpuslab" "$pid" 2>"$work/error" && fail "ptrace_scope $1 and no right: it was read"
		grep -q "$2" "$work/error" || fail "ptrace_scope $1: $(cat "$work/error")"
	}
	if unshare -m sh -c 'mount -t tmpfs none /proc/sys/kernel' 2>/dev/null; then
		refused 0 'missing CAP_SYS_PTRACE'
		refused 1 'ptrace_scope is 1, .* parents and root only: sudo .*setcap .*sysctl kernel.yama.ptrace_scope=0'
		refused 2 'ptrace_scope is 2, .* by root only: sudo .*setcap'
		refused 3 'ptrace_scope is 3, which forbids'
	else
		echo "Yama's settings were not tried: nothing can be put in their place here"
	fi
fi
"$cpuslab" info $$ 2>"$work/error" && fail "bash runs on cpuslab"
grep -q 'does not run on cpuslab' "$work/error" || fail "$(cat "$work/error")"
# One that has ended and waits for its parent is not one that there never was; nor is a thread of the kernel.
mkfifo "$work/end"
(
	head -c 1 "$work/end" >/dev/null &
	echo $! >"$work/ended"
	exec sleep 1000
) &
parent=$!
begun+=("$parent")
disown "$parent"
# Not before its parent is one that never waits.
sleeps() {
	grep -qx sleep "/proc/$parent/comm"
}
eventually sleeps
ended=$(cat "$work/ended")
echo >"$work/end"
waits() {
	grep -q ') Z ' "/proc/$ended/stat"
}
eventually waits
for command in info map 'top --once --delay=0.05' 'profile --seconds=0'; do
	# shellcheck disable=SC2086
	"$cpuslab" $command "$ended" 2>"$work/error" && fail "it has ended"
	grep -qx "cpuslab ${command%% *}: process $ended (.*): the process has ended" "$work/error" || fail "$(cat "$work/error")"
done
if grep -qx kthreadd /proc/2/comm 2>/dev/null; then
	"$cpuslab" info 2 2>"$work/error" && fail "the kernel has a heap"
	grep -q 'process 2 (kthreadd): it has no memory of its own: a thread of the kernel$' "$work/error" || fail "$(cat "$work/error")"
fi
"$cpuslab" info no-such-name 2>"$work/error" && fail "a name that nobody has"
grep -q "no process is called 'no-such-name'" "$work/error" || fail "$(cat "$work/error")"

# A library with a root record of the next version.
$python - "$build/libcpuslab.so" "$work/next.so" <<'PYTHON'
import struct, sys
image = open(sys.argv[1], "rb").read()
record = b"cpuslab\0" + struct.pack("<I", 2)
assert image.count(record) == 1
open(sys.argv[2], "wb").write(image.replace(record, b"cpuslab\0" + struct.pack("<I", 3)))
PYTHON
library=$work/next.so begin "$build/tests/target_crowd" 1 10
"$cpuslab" info "$pid" 2>"$work/error" && fail "another version was read"
grep -q 'root record has version 3; this tool .* reads version 2: use the cpuslab command' "$work/error" ||
	fail "$(cat "$work/error")"

# ---- real programs ---------------------------------------------------------------------------------------------------

# every_command NAME: each says of the process what it is for; a profile, that something was allocated.
every_command() {
	"$cpuslab" info -T "$pid" | grep -q "^Process $pid ($1)" || fail "info on $1"
	"$cpuslab" top --once "$pid" | grep -q 'malloc-[0-9]' || fail "top on $1"
	LC_ALL=C "$cpuslab" map "$pid" | awk 'NR == 2 && $2 + 0 > 0 { found = 1 } END { exit !found }' || fail "map of $1"
	"$cpuslab" profile --seconds=1 --interval=4K --format=folded --total "$pid" >"$work/folded" || fail "profile of $1"
	grep -q '^[^ ].*;.* [1-9][0-9]*$' "$work/folded" || fail "nothing in the profile of $1"
}

# A bytearray ends with a zero byte: one more than is asked for, beyond what python3 keeps in arenas of its own.
LD_PRELOAD=$build/libcpuslab.so $python -c 'import time
keep = [bytearray(600) for _ in range(100000)]
print("up", flush=True)
while True:
    keep = keep[1000:] + [bytearray(600) for _ in range(1000)]
    time.sleep(0.01)' >"$work/python" &
pid=$!
disown "$pid"
begun+=("$pid")
eventually test -s "$work/python"
[ "$("$cpuslab" info "$pid" malloc-640 | awk 'NR == 2 { print ($2 >= 98000) }')" = 1 ] || fail "python3's objects"
every_command 'python3[.0-9]*'
if command -v redis-server >/dev/null; then
	LD_PRELOAD=$build/libcpuslab.so redis-server --port 0 --unixsocket "$work/redis" --save '' >/dev/null &
	pid=$!
	disown "$pid"
	begun+=("$pid")
	eventually "$cpuslab" info "$pid" >/dev/null 2>&1
	eventually redis-cli -s "$work/redis" ping >/dev/null 2>&1
	redis-benchmark -s "$work/redis" -q -n 10000000 -r 1000000 -t set,lpush >/dev/null 2>&1 &
	begun+=($!)
	disown $!
	every_command redis-server
fi
exit 0
