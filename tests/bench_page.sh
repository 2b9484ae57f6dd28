#!/bin/sh
# The page of `cpuslab bench` in a browser: every plot is there with a mark for each figure, no label lies over
# another or outside its plot, by day and by night.  The results are made up, so that each kind of plot is drawn
# and the page is always the same.
set -eu
command=$CPUSLAB_BUILD/cpuslab
[ -x "$command" ] || { echo "the command was not built"; exit 77; }
command -v python3 >/dev/null || { echo "python3 is not here"; exit 77; }
command -v chromium >/dev/null || { echo "chromium is not here: the page is not looked at"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 - "$work" <<'END'
import json, random, sys
random.seed(3)
allocators = ['cpuslab', 'glibc', 'jemalloc', 'mimalloc', 'gperftools', 'mimalloc3', 'jemalloc53', 'snmalloc',
              'rpmalloc', 'tcmalloc']
series = []
def add(group, test, parameter, metric, unit, allocator, value, role='measured', better='lower'):
    series.append({'group': group, 'test': test, 'parameter': parameter, 'metric': metric, 'unit': unit,
                   'allocator': allocator, 'role': role, 'better': better,
                   'samples': [value * random.uniform(.97, 1.03) for _ in range(1 if role == 'exact' else 5)]})
for power in range(3, 17):
    for allocator in allocators:
        add('kmalloc', '1 alloc, then free', str(1 << power), 'alloc', 'cycles', allocator, 10 ** random.uniform(.9, 4))
        add('kmalloc', '2 pair', str(1 << power), 'pair', 'cycles', allocator, random.uniform(12, 40))
    add('kmalloc', '2 pair', str(1 << power), 'pair', 'cycles', 'floor', 10.5, 'floor')
    add('kmalloc', '2 pair', str(1 << power), 'pair', 'cycles', 'kernel 2014', 110, 'published')
for allocator in allocators:
    add('start', 'start and end', 'process', 'start to end', 'ms', allocator, random.uniform(.4, 3))
    add('start', 'start and end', 'process', 'resident', 'B', allocator, random.uniform(1.5e6, 9e6))
    for threads in (1, 4, 16, 64, 256):
        add('scale', 'threads', str(threads), 'resident', 'B', allocator, 1e7 * threads ** random.uniform(.2, .8))
        # All curves end in one place: their names must not.
        add('scale', 'threads', str(threads), 'CPU time of a call', 'ns', allocator, 10)
    for program in ('sqlite', 'python', 'python on malloc', 'git', 'git repack', 'gcc', 'redis', 'node'):
        for metric, unit in (('wall', 's'), ('peak resident', 'B')):
            add('programs', 'real programs', program, metric, unit, allocator, random.uniform(.8, 1.2))
    for workload in ('larson', 'fragment'):
        for metric, unit in (('wall', 's'), ('peak resident', 'B')):
            add('programs', 'workloads', workload, metric, unit, allocator, random.uniform(.8, 3))
        for call in ('malloc', 'free'):
            at = 20
            for share in ('p50', 'p90', 'p99', 'p99.9', 'p99.99', 'max'):
                add('programs', 'calls of workloads', workload, call + ' ' + share, 'ns', allocator, at)
                at *= 10 ** random.uniform(.1, 1.2)
for threads in (1, 4, 16):
    add('scale', 'threads', str(threads), 'CPU time of a call', 'ns', 'on paper', 10, 'published')
for lock in ('bare pair', 'pagelock', 'two-step', 'spinlock', 'mcs', 'pthread_mutex', 'pthread_spin', 'nsync_mu'):
    add('locks', 'alone', 'lock and unlock', 'pair', 'cycles', lock, random.uniform(5, 20))
for load in ('0 in, 0 out', '50 in, 50 out', '1000 in, 50 out'):
    for lock in ('pagelock', 'pthread_mutex', 'parking_lot', 'nsync_mu'):
        add('locks', 'sleeping, 8 threads', load, 'turns', '/s', lock, random.uniform(1e6, 4e7), better='higher')
for cache in ('kmalloc-32', 'kmalloc-256'):
    for index in ('index 4 bytes', 'index 1 byte'):
        add('geometry', 'slabs', cache, 'objects in a slab', 'objects', index, 100, 'exact', 'higher')
json.dump({'format': 'cpuslab-bench-1', 'machine': {'cpu': 'a & b <c>', 'cores': '2', 'date': 'today'},
           'allocators': {name: 'version' for name in allocators}, 'notes': {'noisy: spread': 'very'},
           'series': series}, open(sys.argv[1] + '/results.json', 'w'))
END

"$command" bench show "$work/results.json" --format html >"$work/page.html"
# The same page, asked where its labels lie.
python3 - "$work" <<'END'
import sys
page = open(sys.argv[1] + '/page.html').read()
script = '''<script>
const wrong = [];
for (const svg of document.querySelectorAll('svg')) {
    const frame = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()]);
    texts.forEach(([a, p], i) => {
        if (p.left < frame.left - 1 || p.right > frame.right + 1 || p.top < frame.top - 1 || p.bottom > frame.bottom + 1)
            wrong.push(svg.dataset.plot + ': outside: ' + a);
        texts.slice(0, i).forEach(([b, q]) => {
            if (p.left < q.right - 1 && q.left < p.right - 1 && p.top < q.bottom - 3 && q.top < p.bottom - 3)
                wrong.push(svg.dataset.plot + ': ' + a + ' over ' + b);
        });
    });
}
document.body.dataset.wrong = JSON.stringify(wrong);
document.body.dataset.paper = getComputedStyle(document.body).backgroundColor;
</script></body>'''
open(sys.argv[1] + '/asked.html', 'w').write(page.replace('</body>', script))
END

# look FILE FLAGS...: what the browser has made of the page
look() {
	page=$1
	shift
	# Root needs --no-sandbox; the profile goes where everything else of this test goes.
	HOME=$work timeout 100 chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage \
		--user-data-dir="$work/profile" --window-size=1180,900 "$@" --dump-dom "file://$work/$page" 2>"$work/log"
}
look asked.html --virtual-time-budget=5000 >"$work/dom.html" || { cat "$work/log"; exit 1; }
look asked.html --virtual-time-budget=5000 --blink-settings=preferredColorScheme=0 >"$work/night.html"

python3 - "$work" <<'END'
import html.parser, json, sys
folder = sys.argv[1]
series = json.load(open(folder + '/results.json'))['series']

class Dom(html.parser.HTMLParser):
    def __init__(self, name):
        super().__init__()
        self.plots, self.body = [], {}
        self.feed(open(folder + '/' + name).read())
    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag == 'svg':
            self.plots.append([attributes['class'], attributes['data-plot'], 0])
        elif tag == 'body':
            self.body = attributes
        elif 'mark' in attributes.get('class', '').split():
            self.plots[-1][2] += 1

def figures(group, test, metric, roles=('measured', 'exact')):
    return [s for s in series if (s['group'], s['test'], s['metric']) == (group, test, metric) and s['role'] in roles]

ours, system = ('cpuslab', 'pagelock', 'spinlock'), ('glibc', 'pthread_mutex', 'pthread_spin')
def has_both(table):
    columns = {s['allocator'] for s in figures(*table)}
    return any(o in columns for o in ours) and any(s in columns for s in system)

def expected(kind, plot):
    if kind == 'overview':
        return sum(has_both(table) for table in {(s['group'], s['test'], s['metric']) for s in series})
    group, test, metric = plot.split('|')
    if kind == 'scatter':
        return len({s['allocator'] for s in figures(group, test, metric)})
    if kind == 'latency':
        return len({s['allocator'] for s in figures(group, 'calls of workloads', test + ' p50')})
    return len(figures(group, test, metric))

day, night = Dom('dom.html'), Dom('night.html')
kinds = {kind for kind, plot, marks in day.plots}
assert kinds == {'overview', 'bars', 'ranking', 'dots', 'curves', 'scatter', 'latency'}, kinds
for kind, plot, marks in day.plots:
    assert marks == expected(kind, plot) > 0, (kind, plot, marks, expected(kind, plot))
drawn = {plot for kind, plot, marks in day.plots}
for s in series:
    plot = '|'.join((s['group'], s['test'], s['metric']))
    assert plot in drawn or s['test'] == 'calls of workloads', plot + ' is not drawn'
assert json.loads(day.body['data-wrong']) == [], '\n'.join(json.loads(day.body['data-wrong']))
assert day.plots == night.plots
assert day.body['data-paper'] == 'rgb(255, 255, 255)' != night.body['data-paper'], night.body['data-paper']
END
