#!/bin/sh
# cpuslab bench measures what it says and writes what others can read: a peer that sleeps loses by what it
# sleeps, every format parses, an interrupted run resumes, two runs compare, and wrong calls are refused.
set -eu
command=$CPUSLAB_BUILD/cpuslab
sleepy=$(find "$CPUSLAB_BUILD" -name libbench_sleepy.so | head -n 1)
bound=$(find "$CPUSLAB_BUILD" -name libbench_bound.so | head -n 1)
many=$(find "$CPUSLAB_BUILD" -name libbench_many.so | head -n 1)
liar=$(find "$CPUSLAB_BUILD" -name libbench_liar.so | head -n 1)
[ -x "$command" ] && [ -n "$sleepy" ] && [ -n "$bound" ] && [ -n "$many" ] && [ -n "$liar" ] ||
	{ echo "the command or what it measures here was not built"; exit 77; }
command -v python3 >/dev/null || { echo "python3 is not here"; exit 77; }
# Sanitizers must come first in a process, and so must a preloaded allocator.
[ -z "${CPUSLAB_SANITIZE:-}" ] || { echo "allocators are not preloaded into sanitized programs"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$command" bench kmalloc --peers "glibc,sleepy=$sleepy" --sizes 64 --reps 4 --threads 1 --out "$work/a" >"$work/table"
grep -q '^Verdict' "$work/table"

python3 - "$work/a" "$work/table" <<'END'
import csv, html.parser, json, re, sys, xml.dom.minidom
folder = sys.argv[1]
results = json.load(open(folder + '/results.json'))
assert results['format'] == 'cpuslab-bench-1' and results['series'] and results['machine']['cpu']
def samples(allocator, metric='alloc', test='1 alloc, then free'):
    return next(s['samples'] for s in results['series']
                if (s['allocator'], s['metric'], s['test'], s['parameter']) == (allocator, metric, test, '64'))
# Ticks in 5 microseconds: the slow clock bounds them from below, whatever else the machine does.
hertz = float(re.search(r'at ([0-9.]+) GHz', results['machine']['clocks']).group(1)) * 1e9 \
    if results['series'][0]['unit'] == 'cycles' else 1e9
assert len(samples('sleepy')) == 4
assert float(results['seconds']['kmalloc']) > 0
# The seeds' figures stand beside ours.
published = [samples(column, 'pair', '2 pair')
             for column in ('kernel 2007', '2007 emulated', 'kernel 2014', 'with seed 001')]
assert published == [[104], [143], [115], [109]], published
assert min(samples('sleepy')) >= 0.98 * 5e-6 * hertz, (samples('sleepy'), hertz)
assert max(samples('sleepy', 'free')) < 5e-6 * hertz, 'its free does not sleep'
assert all(s > 0 for s in samples('floor')), 'the empty call takes time: nothing was removed'
rows = list(csv.DictReader(open(folder + '/results.csv')))
assert len(rows) == len(results['series']) and all(float(r['median']) >= 0 for r in rows)
page = open(folder + '/results.html').read()
class Balance(html.parser.HTMLParser):
    stack = []
    def handle_starttag(self, tag, attributes):
        if tag not in ('meta', 'line', 'rect', 'circle', 'polyline', 'br'): self.stack.append(tag)
    def handle_endtag(self, tag):
        if tag not in ('line', 'rect', 'circle', 'polyline'): assert self.stack.pop() == tag, tag
parser = Balance(); parser.feed(page); assert parser.stack == []
plots = re.findall(r'<svg.*?</svg>', page, re.S)
assert plots and '<script' not in page and 'http' not in page
for plot in plots:
    tree = xml.dom.minidom.parseString(plot)
    assert tree.getElementsByTagName('rect') or tree.getElementsByTagName('polyline')
END

# Nothing is timed that the compiler could remove: the loops of the tests have every call in them, through a
# pointer, and every write into an object.
if command -v objdump >/dev/null && [ "$(uname -m)" = x86_64 ]; then
	objdump -d --no-show-raw-insn "$command" | awk '
		/^[0-9a-f]+ <[a-z_.0-9]+>:$/ { name = $2; sub(/^</, "", name); sub(/[.>].*/, "", name) }
		BEGIN {
			expected["allocate_all"] = "1 1"; expected["release_all"] = "1 0"
			expected["pairs_untouched"] = "2 0"; expected["pairs_touched"] = "2 1"
		}
		name in expected && /[[:space:]]callq? +\*/ { called++ }
		name in expected && /[[:space:]]movb +\$0x/ { written++ }
		/^$/ {
			if (name in expected) {
				found++
				if (called + 0 " " written + 0 != expected[name]) {
					print name ": " called + 0 " calls and " written + 0 " writes, not " expected[name]
					wrong = 1
				}
			}
			name = ""; called = written = 0
		}
		END { exit wrong || found < 4 }'
fi

# A second run finds everything measured and measures nothing.
cp "$work/a/results.json" "$work/first.json"
"$command" bench kmalloc --peers "glibc,sleepy=$sleepy" --sizes 64 --reps 4 --threads 1 --out "$work/a" >/dev/null
python3 -c 'import json, sys
a, b = (json.load(open(f))["series"] for f in sys.argv[1:])
assert a == b' "$work/first.json" "$work/a/results.json"

"$command" bench compare "$work/first.json" "$work/a/results.json" | grep -q '1.00x'

# Where results cannot be saved the run says so, at once if that can be known, and what there was stays.
mkdir "$work/full" "$work/cut"
cp "$work/first.json" "$work/full/results.json"
(
	trap '' XFSZ
	ulimit -f 1
	"$command" bench start --peers glibc --reps 1 --out "$work/full" 2>&1
) >"$work/said" && { echo "nothing is said of a full disk"; exit 1; }
grep -q "^cpuslab bench: $work/full/results.json: File too large" "$work/said" || { cat "$work/said"; exit 1; }
[ "$(ls "$work/full")" = results.json ] || { ls "$work/full"; exit 1; }
cmp "$work/first.json" "$work/full/results.json"
head -c 100 "$work/first.json" >"$work/cut/results.json"
for folder in "$work/none/here" "$work/cut" "$work/said"; do
	status=0
	timeout 60 "$command" bench all --peers glibc --out "$folder" >"$work/out" 2>&1 || status=$?
	[ $status -eq 1 ] && grep -q "^cpuslab bench: $folder" "$work/out" || { echo "$folder: $status"; exit 1; }
done
[ "$(wc -c <"$work/cut/results.json")" -eq 100 ]
"$command" bench show "$work/first.json" --format csv | head -n 1 | grep -q '^group,test'

# Runs that agree hold; the same samples under exchanged names do not.
"$command" bench kmalloc --peers "cpuslab,sleepy=$sleepy" --sizes 64 --reps 4 --threads 1 --out "$work/b" >/dev/null
"$command" bench repeat "$work/b/results.json" "$work/b/results.json" | grep -q 'the same winner in nine runs of ten'
sed 's/"allocator": "cpuslab"/"allocator": "other"/; s/"allocator": "sleepy"/"allocator": "cpuslab"/
	s/"allocator": "other"/"allocator": "sleepy"/' "$work/b/results.json" >"$work/exchanged.json"
! "$command" bench repeat "$work/b/results.json" "$work/exchanged.json" >"$work/out"
grep -q 'alloc: cpuslab to sleepy.*1 of 2' "$work/out"

# Two copies of one library tie, in what does not hang on the machine's mood.
cp "$CPUSLAB_BUILD/libcpuslab.so" "$work/libone.so"
cp "$CPUSLAB_BUILD/libcpuslab.so" "$work/libtwo.so"
"$command" bench geometry --peers "one=$work/libone.so,two=$work/libtwo.so" --reps 4 --out "$work/copies" >/dev/null
sed 's/"one"/"cpuslab"/' "$work/copies/results.json" >"$work/renamed.json"
"$command" bench show "$work/renamed.json" >"$work/table"
grep -A 1 'Against two' "$work/table" | grep -q 'ties  1.00x 200000 objects resident'

# An allocator has another file in another release: the first that can be preloaded is measured.
mkdir "$work/release"
: >"$work/release/libmimalloc.so.2.0"
cp "$sleepy" "$work/release/libmimalloc.so.3"
LD_LIBRARY_PATH=$work/release "$command" bench geometry --peers mimalloc --reps 1 --out "$work/newer" >/dev/null 2>&1
grep -q "$work/release/libmimalloc.so.3\|, libmimalloc.so.3" "$work/newer/results.json"

# The seed's eight rows come out of the rules for slabs, before and after.
"$command" bench geometry --peers cpuslab --reps 1 --out "$work/geometry" >/dev/null
python3 - "$work/geometry/results.json" <<'END'
import json, sys
rows = [s for s in json.load(open(sys.argv[1]))['series'] if s['metric'] == 'objects in a slab']
value = {(s['parameter'], s['allocator']): s['samples'] for s in rows}
names = {s['parameter'] for s in rows}
assert len(names) == 8
for name in names:
    assert value[name, 'before, seed'] == value[name, 'index 4 bytes'], name
    assert value[name, 'after, seed'] == value[name, 'index 1 byte'], name
END

# Threads are pinned to CPUs that the command may use, and to no others: of one there is nothing to see.
last=$(python3 -c 'import os; print(max(os.sched_getaffinity(0)))')
"$command" bench kmalloc --peers "bound=$bound" --sizes 64 --reps 1 --threads 2 --out "$work/all" >"$work/table"
if command -v taskset >/dev/null; then
	taskset -c "$last" "$command" bench kmalloc --peers "bound=$bound" --sizes 64 --reps 1 --threads 2 --out "$work/bound" >>"$work/table"
fi
! grep 'bound failed' "$work/table" || exit 1

# Where the system has more CPUs than one asks for they run wherever they are.
"$command" bench kmalloc --peers "many=$many" --sizes 64 --reps 1 --threads 2 --out "$work/many" >"$work/table"
! grep 'many failed' "$work/table" || exit 1

# Of an allocator under which a program prints something else in a later round, no sample of the program stays.
: >"$work/count"
BENCH_LIAR=$work/count "$command" bench programs --only nbody --peers "glibc,liar=$liar" --reps 4 \
	--out "$work/liar" >"$work/table" 2>"$work/said"
grep -q 'liar failed  *left out of workloads: nbody' "$work/table"
grep -q 'nbody under liar printed something else' "$work/said"
grep -q 'workloads: cpu (s, median of 4' "$work/table"
[ "$(wc -c <"$work/count")" -gt 3 ] || { echo "the allocator never told the truth"; exit 1; }
python3 - "$work/liar/results.json" <<'END'
import json, sys
series = [s for s in json.load(open(sys.argv[1]))['series'] if s['test'] == 'workloads']
assert {s['allocator'] for s in series} == {'glibc'}, series
END

# Locks go through the same results; what is aimed at is held against them.
"$command" bench locks --peers none --only alone --load 50:1000 --reps 4 --out "$work/locks" >"$work/table"
for load in 50 :50 50: 50:x x:50 50:50:50 -1:50 50:1000001; do
	"$command" bench locks --peers none --only alone --load $load >"$work/said" 2>&1 && exit 1
	grep -q "cannot use '$load'" "$work/said"
done
grep -q 'aim: at most 1.05.*pagelock to bare pair' "$work/table"
"$command" bench compare "$work/locks/results.json" "$work/locks/results.json" | grep -q 'pagelock.*1.00x'

# The page-fault test in the seed's lines: what they say follows from the samples, for either unlock.
"$command" bench pft --peers glibc --sizes 16M --threads 2 --reps 3 --seed-lines --out "$work/pft" >"$work/table"
python3 - "$work/pft/results.json" "$work/table" <<'END'
import json, os, sys
series = {(s['allocator'], s['test'], s['parameter'], s['metric']): s['samples']
          for s in json.load(open(sys.argv[1]))['series']}
pages, lines = (16 << 20) / os.sysconf('SC_PAGESIZE'), 0
for line in open(sys.argv[2]):
    if line.startswith(('first touch:', 'page runs:')): test = line.strip()[:-1]
    word = line.split()
    if len(word) != 10 or not word[4].endswith('s') or word[0] == 'Gb': continue
    of = lambda metric: series[word[9], test, f'{word[0]} GB, {word[2]} thr', metric]
    assert (float(word[0]), word[1], word[3]) == (16 / 1024, '3', '1'), line
    for metric, said in ('user', word[4]), ('system', word[5]), ('wall', word[6]):
        assert abs(sum(of(metric)) - float(said[:-1])) < 0.006, (line, of(metric))
    assert abs(3 * pages / sum(of('wall')) / float(word[8]) - 1) < 1e-3, line
    assert abs(3 * pages / (sum(of('user')) + sum(of('system'))) / float(word[7]) - 1) < 1e-3, line
    lines += 1
assert lines == 2 * (1 + 1 + 2), lines
END

# The least that malloc and free must do stands beside the allocators where one thread is enough, and is none of them.
for program in nbody chain; do
	"$command" bench programs --only $program --peers glibc,least --reps 2 --out "$work/$program" >"$work/table"
done
python3 - "$work/nbody/results.json" "$work/chain/results.json" <<'END'
import json, sys
nbody, chain = ([s for s in json.load(open(file))['series'] if s['allocator'] == 'least'] for file in sys.argv[1:])
assert {s['metric'] for s in nbody} == {'wall', 'cpu', 'peak resident', 'page faults'} and not chain, (nbody, chain)
assert all(s['role'] == 'floor' and len(s['samples']) == 2 for s in nbody), nbody
END

expect_refusal() {
	status=0
	"$command" bench "$@" >"$work/out" 2>&1 || status=$?
	[ $status -ne 0 ] || { echo "accepted: bench $*"; exit 1; }
}
expect_refusal nothing
expect_refusal all kmalloc
expect_refusal kmalloc quick
expect_refusal kmalloc --sizes 0
expect_refusal kmalloc --reps -1
grep -q "cannot use '-1' for --reps$" "$work/out"
expect_refusal kmalloc --unheard-of 1
grep -q "cannot use '1' for --unheard-of$" "$work/out"
expect_refusal kmalloc --reps
grep -q "cannot use '--reps'$" "$work/out"
for group in $("$command" bench list | cut -d ' ' -f 1); do
	expect_refusal "$group" --peers none --only unheard-of
	grep -q "nothing that was asked for has 'unheard-of' in its name" "$work/out"
done
# A finished run in the folder is no answer either.
expect_refusal kmalloc --peers none --only unheard-of --out "$work/a"
"$command" bench kmalloc engines --peers none --only '2 pair' --sizes 64 --reps 1 --format csv >"$work/out"
[ "$(cut -d , -f 1,2 "$work/out" | grep -c '^group,test$\|^kmalloc,2 pair$\|^engines,2 pair$')" \
	-eq "$(wc -l <"$work/out")" ] || { cat "$work/out"; exit 1; }

# No option is accepted and ignored.
expect_refusal programs start --sizes 64
grep -q 'sizes is an option of other groups: kmalloc, engines' "$work/out"
expect_refusal messaging --threads 8
expect_refusal kmalloc --load 50:50
expect_refusal large --seed-lines
expect_refusal locks --peers glibc
expect_refusal show "$work/a/results.json" --peers glibc
expect_refusal list kmalloc
expect_refusal kmalloc --format xml
expect_refusal kmalloc --peers unheard-of
expect_refusal kmalloc --peers "glibc,missing=/nowhere/lib.so"
expect_refusal show "$work/table"
printf '{"format": "cpuslab-bench-1", "series": [{"samples": [1, ' >"$work/cut.json"
expect_refusal compare "$work/cut.json" "$work/cut.json"
