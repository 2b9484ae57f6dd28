/* SPDX-License-Identifier: MIT */
/*
 * programs: what users run.  Real programs, unchanged, on inputs generated here; and the workloads of
 * workloads/.
 *
 * For each: wall time, CPU time, peak resident memory and page faults of the whole process tree.  A program
 * must print the same under every allocator.  Workloads run twice more, in a process each: with every call to
 * malloc and free timed (latency), and on for two seconds after everything was freed (final memory).
 */
#include "program.h"

#include "heap.h"
#include "machine.h"
#include "statistics.h"
#include "ticks.h"
#include "workloads/workload.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ======== in the worker ======== */

static const struct workload {
	const char *name, *text;
	bool threads;
	uint64_t (*run)(unsigned scale);
} workloads[] = {
#define WORKLOAD(name, threads, text) {#name, text, threads, workload_##name},
#include "workloads/workloads.def"
#undef WORKLOAD
};

enum { WORKLOAD_COUNT = sizeof(workloads) / sizeof(workloads[0]) };

static const double shares[] = {0.5, 0.9, 0.99, 0.999, 0.9999, 1};
static const char *const share_names[] = {"p50", "p90", "p99", "p99.9", "p99.99", "max"};
enum { SHARES = sizeof(shares) / sizeof(shares[0]) };

struct calls_report {
	double latency[HEAP_CALLS][SHARES]; /* nanoseconds */
};

int worker_workload(int argc, char **argv)
{
	const struct workload *w = workloads;
	if (argc != 4)
		return 2;
	while (w < workloads + WORKLOAD_COUNT && strcmp(w->name, argv[1]) != 0)
		w++;
	if (w == workloads + WORKLOAD_COUNT)
		return 2;
	bool calls = strcmp(argv[3], "calls") == 0;
	unsigned scale = (unsigned)strtoul(argv[2], NULL, 10);
	if (!calls) {
		heap_init(false);
		printf("%016llx\n", (unsigned long long)w->run(scale));
		return 0;
	}
	struct calls_report report;
	double nanoseconds = 1e9 / ticks_per_second(0.02);
	heap_init(true);
	w->run(scale);
	heap_thread_end();
	for (enum heap_call call = 0; call < HEAP_CALLS; call++)
		for (unsigned i = 0; i < SHARES; i++)
			report.latency[call][i] = nanoseconds * heap_latency(call, shares[i]);
	if (!session_reply(&report, sizeof(report)))
		return 1;
	rest();
	double final_bytes = resident_bytes();
	return session_reply(&final_bytes, sizeof(final_bytes)) ? 0 : 1;
}

/* ======== in the command ======== */

/* "= NAME" uses another program's setup. */
static const struct program programs[] = {
	{"sqlite",
	 "sqlite3",
	 "cat > query.sql <<'END'\n"
	 "create table item(id integer primary key, name text, price integer, tags text);\n"
	 "with recursive n(i) as (select 1 union all select i + 1 from n where i < 60000)\n"
	 "  insert into item select i, 'item ' || (i * 7919 % 60000), i * 37 % 1000, hex(i * 104729) from "
	 "n;\n"
	 "create index item_name on item(name);\n"
	 "create index item_price on item(price, name);\n"
	 "select price, count(*), min(name), group_concat(tags) from item group by price order by 2, 1 limit "
	 "40;\n"
	 "select count(*) from item a join item b on a.name = b.name and a.id < b.id + 100;\n"
	 "update item set tags = tags || name where price % 3 = 0;\n"
	 "delete from item where id % 5 = 0;\n"
	 "select sum(length(tags)), max(name) from item where name like '%9%';\n"
	 "END\n",
	 {"sqlite3", "-batch", ":memory:", ".read query.sql"},
	 false,
	 false},
	{"python",
	 "python3",
	 "cat > work.py <<'END'\n"
	 "import json, re, random\n"
	 "random.seed(1)\n"
	 "words = ['w%d' % (i * 7919 % 5003) for i in range(60000)]\n"
	 "count = {}\n"
	 "for w in words: count[w] = count.get(w, 0) + 1\n"
	 "rows = [{'id': i, 'name': w, 'tags': [w[:2], w[1:]], 'n': count[w]} for i, w in "
	 "enumerate(words[:15000])]\n"
	 "text = json.dumps(rows)\n"
	 "back = json.loads(text)\n"
	 "back.sort(key=lambda r: (r['n'], r['name'], r['id']))\n"
	 "found = re.findall(r'w(\\d)\\d*7', text)\n"
	 "class Node:\n"
	 "    def __init__(self, d): self.kids = [Node(d - 1) for _ in range(3)] if d else []\n"
	 "    def size(self): return 1 + sum(k.size() for k in self.kids)\n"
	 "total = sum(Node(8).size() for _ in range(3))\n"
	 "print(len(text), len(found), total, back[0], back[-1]['id'])\n"
	 "END\n"
	 /* The interpreter itself: python3 may be a script that looks for one. */
	 "ln -s \"$(python3 -c 'import sys; print(sys.executable)')\" interpreter\n",
	 {"./interpreter", "-S", "-B", "work.py"},
	 false,
	 false},
	{"python on malloc",
	 "python3",
	 "= python",
	 {"env", "PYTHONMALLOC=malloc", "./interpreter", "-S", "-B", "work.py"},
	 false,
	 false},
	{"git",
	 "git",
	 "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b "
	 "HOME=$PWD\n"
	 "git init -q repo && cd repo && awk 'BEGIN {\n"
	 "  for (c = 1; c <= 300; c++) {\n"
	 "    printf \"commit refs/heads/main\\nmark :%d\\ncommitter a <a@b> %d +0000\\ndata 9\\ncommit "
	 "%02d\\n\", c,\n"
	 "      1700000000 + c, c % 100\n"
	 "    if (c > 1) printf \"from :%d\\n\", c - 1\n"
	 "    for (f = 0; f < 5; f++) {\n"
	 "      text = \"\"\n"
	 "      for (l = 0; l < 120; l++) text = text sprintf(\"line %d of file %d %d\\n\", l, f,\n"
	 "        (l * 31 + int((c + f * 60) / (1 + l % 17)) * 17) % 997)\n"
	 "      printf \"M 644 inline dir%d/file%d\\ndata %d\\n%s\\n\", c % 20, (c * 7 + f) % 90, "
	 "length(text), text\n"
	 "    }\n"
	 "  }\n"
	 "}' | git fast-import --quiet\n",
	 {"git", "-C", "repo", "-c", "pack.threads=1", "log", "-p", "--stat", "main"},
	 false,
	 false},
	{"git repack",
	 "git",
	 "= git",
	 {"git", "-C", "repo", "-c", "pack.threads=1", "repack", "-a", "-d", "-f", "-q"},
	 false,
	 false},
	{"gcc",
	 "gcc",
	 "awk 'BEGIN {\n"
	 "  print \"struct s { struct s *next; int v[4]; const char *name; };\"\n"
	 "  for (i = 0; i < 150; i++) {\n"
	 "    printf \"static int f%d(struct s *s, int n)\\n{\\n\\tint sum = n;\\n\", i\n"
	 "    printf \"\\tfor (int i = 0; i < n; i++) {\\n\\t\\tfor (struct s *p = s; p; p = p->next) "
	 "{\\n\"\n"
	 "    printf \"\\t\\t\\tif (p->v[i & 3] > %d)\\n\\t\\t\\t\\tsum += p->v[%d] * i;\\n\", i, i % 4\n"
	 "    printf \"\\t\\t\\telse switch (i %% 7) { case 1: sum ^= %d; break; case 2: sum -= p->v[0]; "
	 "break;\", i\n"
	 "    printf \" case 5: p->v[1] = sum; break; default: sum++; }\\n\\t\\t}\\n\\t}\\n\"\n"
	 "    if (i > 0) printf \"\\tif (sum & 1)\\n\\t\\tsum += f%d(s, n - 1);\\n\", i - 1\n"
	 "    printf \"\\treturn sum;\\n}\\n\"\n"
	 "  }\n"
	 "  print \"int start(struct s *s) { return f149(s, 9); }\"\n"
	 "}' > big.c\n",
	 {"gcc", "-O2", "-S", "-o", "-", "big.c"},
	 false,
	 false},
	/* Debian's redis-tools contains the server as well, under this name. */
	{"redis",
	 "redis-check-rdb",
	 "ln -sf \"$(command -v redis-check-rdb)\" redis-server\n"
	 "cat > run.sh <<'END'\n"
	 "LD_PRELOAD=$BENCH_PRELOAD ./redis-server --port 0 --unixsocket $PWD/socket --save '' --appendonly "
	 "no "
	 "\\\n"
	 "  --databases 1 >/dev/null &\n"
	 "tries=0\n"
	 "until [ -S socket ] || [ $tries -gt 3000 ]; do sleep 0.01; tries=$((tries + 1)); done\n"
	 "redis-benchmark -s socket -n 20000 -r 20000 -d 100 -c 20 -P 16 -q \\\n"
	 "  -t set,get,incr,lpush,rpop,sadd,hset,spop,zadd >/dev/null\n"
	 "redis-cli -s socket config get maxmemory\n"
	 "redis-cli -s socket shutdown nosave\n"
	 "wait\n"
	 "rm -f socket\n"
	 "END\n",
	 {"sh", "run.sh"},
	 true,
	 true},
	{"node",
	 "node",
	 "cat > work.js <<'END'\n"
	 "const map = new Map(), rows = [];\n"
	 "for (let i = 0; i < 80000; i++) {\n"
	 "  const key = 'key' + (i * 7919 % 20011);\n"
	 "  map.set(key, (map.get(key) || 0) + i);\n"
	 "  if (i % 4 == 0) rows.push({ id: i, key, list: [i, i + 1, key], text: key.repeat(3) });\n"
	 "}\n"
	 "const text = JSON.stringify(rows), back = JSON.parse(text);\n"
	 "back.sort((a, b) => a.key < b.key ? -1 : a.key > b.key ? 1 : a.id - b.id);\n"
	 "const buffers = [];\n"
	 "for (let i = 0; i < 2000; i++) buffers[i % 200] = Buffer.alloc(1000 + i * 13 % 60000, i & 255);\n"
	 "console.log(text.length, map.size, back[0].id, buffers.reduce((s, b) => s + b.length, 0));\n"
	 "END\n",
	 {"node", "work.js"},
	 false,
	 true},
};

enum { PROGRAM_COUNT = sizeof(programs) / sizeof(programs[0]) };

static void add_metric(struct bench *bench, struct cell *cell, const char *peer, const char *metric,
		       const char *unit, double sample)
{
	cell->metric = metric;
	cell->unit = unit;
	results_add(&bench->results, cell, peer, ROLE_MEASURED, sample);
}

/* Workers at rest, while the next one already works. */
struct calls {
	struct run *run;
	struct reporter workers[PEERS_MAX];
	struct calls_report reports[PEERS_MAX];
};

static bool begin_calls(struct bench *bench, unsigned peer, bool warm_up, void *context)
{
	struct calls *calls = context;
	struct reporter *worker = &calls->workers[peer];
	struct calls_report *report = &calls->reports[peer];
	/* A percentile of millions of calls needs no warm-up round. */
	if (warm_up)
		return true;
	calls->run->launch.peer = &bench->peers.list[peer];
	if (reporter_start(worker, calls->run->launch) && reporter_read(worker, report, sizeof(*report)))
		return true;
	reporter_end(worker);
	return false;
}

static bool finish_calls(struct bench *bench, unsigned peer, bool warm_up, void *context)
{
	struct calls *calls = context;
	struct run *run = calls->run;
	const char *name = bench->peers.list[peer].name;
	double final_bytes;
	if (warm_up)
		return true;
	bool well = reporter_read(&calls->workers[peer], &final_bytes, sizeof(final_bytes));
	if (!reporter_end(&calls->workers[peer]) || !well)
		return false;
	for (enum heap_call call = 0; call < HEAP_CALLS; call++)
		for (unsigned i = 0; i < SHARES; i++) {
			char metric[RESULTS_NAME];
			snprintf(metric, sizeof(metric), "%s %s", call == HEAP_ALLOCATE ? "malloc" : "free",
				 share_names[i]);
			add_metric(bench, &run->cell, name, metric, "ns",
				   calls->reports[peer].latency[call][i]);
		}
	add_metric(bench, &run->cell, name, "final resident", "B", final_bytes);
	return true;
}

static const char *setup_of(const struct program *program)
{
	for (unsigned i = 0; strncmp(program->setup, "= ", 2) == 0 && i < PROGRAM_COUNT; i++)
		if (strcmp(programs[i].name, program->setup + 2) == 0)
			return programs[i].setup;
	return program->setup;
}

static void run_program(struct bench *bench, const struct program *program, const char *base)
{
	struct program prepared = *program;

	prepared.setup = setup_of(program);
	program_measure(bench, "programs", "real programs", &prepared, base);
}

static void run_workload(struct bench *bench, const struct workload *workload, const char *base)
{
	struct run run = {.cell = {"programs", "workloads", workload->name, "wall", "s", BETTER_LOWER}};
	char *argv[] = {launch_program,         "bench", "worker", "workload",
			(char *)workload->name, "60",    "time",   NULL};
	snprintf(run.output, sizeof(run.output), "%.3000s/output", base);
	run.launch = (struct launch){
		.argv = argv, .output = run.output, .cpu = workload->threads ? -1 : machine_pinned_cpu()};
	unsigned rounds = program_rounds(bench);
	bench->without_bounds = workload->threads;
	if (!program_run(bench, &run, rounds))
		return;
	bench->without_bounds = true;
	/* Millions of calls make a percentile: a few rounds suffice. */
	argv[6] = "calls";
	run.cell.test = "calls of workloads";
	struct calls calls = {.run = &run};
	bench_rounds_overlapped(bench, &run.cell, rounds < 4 ? rounds : 4, begin_calls, finish_calls, &calls);
}

bool group_programs(struct bench *bench)
{
	char base[PATH_MAX];
	if (!launch_make_folder(base))
		return false;
	bench->without_bounds = true;
	for (unsigned i = 0; i < PROGRAM_COUNT; i++)
		if (bench_asked_for(bench, programs[i].name))
			run_program(bench, &programs[i], base);
	for (unsigned i = 0; !bench->settings.quick && i < WORKLOAD_COUNT; i++)
		if (bench_asked_for(bench, workloads[i].name))
			run_workload(bench, &workloads[i], base);
	bench->without_bounds = false;
	launch_remove_folder(base);
	return true;
}
