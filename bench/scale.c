/* SPDX-License-Identifier: MIT */
/*
 * scale: the cost of an operation, and the memory held, as threads grow from one to more than the CPUs.
 *
 * The total work is constant: each thread replaces random objects of its own, and hands every sixteenth to
 * the next thread.  Time is CPU time per operation (an allocation or a free), since wall time says nothing
 * once threads outnumber CPUs.  On paper both curves are flat: no operation waits for another thread, and no
 * thread owns memory of the allocator's. cpuslab runs twice, the second time with a vCPU slot for each thread
 * (vcpu:slot), which simulates more vCPUs than this machine has.  For cpuslab the slow paths and lock
 * acquisitions per million operations are counted as well: they are exact where time is not.
 *
 * When all objects are freed the threads stay idle: what is resident then is what an allocator holds for idle
 * threads, and after malloc_trim(0) what it cannot give back.
 */
#include "bench.h"

#include "launch.h"
#include "statistics.h"

#include <cpuslab/cpuslab.h>

#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Enough operations for magazines to grow to what their misses earn, however many threads there are. */
enum { THREADS_MAX = 256, OBJECTS = 1 << 14, OPERATIONS = 40000000 };

struct report {
	double nanoseconds;               /* per call */
	double resident, idle, trimmed;   /* bytes */
	double slow_paths, lock_acquires; /* per million calls */
	bool counted;
};

/* ======== in the worker ======== */

static struct member {
	pthread_t thread;
	unsigned index, count;
	_Alignas(64) _Atomic(char *) handed;
} members[THREADS_MAX];

static pthread_barrier_t ready, warm, done, measured, idle, end;

/*
 * Each thread has its part: on the threads' stacks they would be resident memory that no allocator is to
 * blame for.
 */
static char *all_objects[OBJECTS];

static unsigned next_random(unsigned long *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (unsigned)(*state >> 33);
}

static void replace(struct member *m, char **objects, unsigned slots, unsigned steps, unsigned long *random)
{
	for (unsigned i = 0; i < steps; i++) {
		char **slot = &objects[next_random(random) % slots];
		char *old = *slot;
		/* Every sixteenth object is freed by the next thread. */
		if (i % 16 == 0)
			old = atomic_exchange_explicit(&members[(m->index + 1) % m->count].handed, old,
						       memory_order_acq_rel);
		free(old);
		*slot = malloc(16 + next_random(random) % 1008);
		**slot = 1;
	}
}

static void *work(void *argument)
{
	struct member *m = argument;
	unsigned slots = OBJECTS / m->count, steps = OPERATIONS / 2 / m->count;
	char **objects = all_objects + (size_t)m->index * slots;
	unsigned long random = m->index + 1;
	pthread_barrier_wait(&ready);
	replace(m, objects, slots, steps / 4, &random);
	pthread_barrier_wait(&warm);
	pthread_barrier_wait(&measured);
	replace(m, objects, slots, steps, &random);
	pthread_barrier_wait(&done);
	pthread_barrier_wait(&measured);
	for (unsigned i = 0; i < slots; i++)
		free(objects[i]);
	free(atomic_exchange(&m->handed, NULL));
	pthread_barrier_wait(&idle);
	pthread_barrier_wait(&end);
	return NULL;
}

static double cpu_seconds(void)
{
	struct cpu_time used = cpu_time();
	return used.user + used.system;
}

int worker_scale(int argc, char **argv)
{
	unsigned threads = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 0;
	if (threads == 0 || threads > THREADS_MAX)
		return 2;
	void (*count)(struct cpuslab_counters *) =
		(void (*)(struct cpuslab_counters *))dlsym(RTLD_DEFAULT, "cpuslab_read_counters");
	struct cpuslab_counters before = {0}, after = {0};
	pthread_attr_t stacks;
	pthread_attr_init(&stacks);
	pthread_attr_setstacksize(&stacks, 512 << 10);
	pthread_barrier_init(&ready, NULL, threads);
	pthread_barrier_init(&warm, NULL, threads + 1);
	pthread_barrier_init(&done, NULL, threads + 1);
	pthread_barrier_init(&measured, NULL, threads + 1);
	pthread_barrier_init(&idle, NULL, threads + 1);
	pthread_barrier_init(&end, NULL, threads + 1);
	for (unsigned i = 0; i < threads; i++) {
		members[i].index = i;
		members[i].count = threads;
		if (pthread_create(&members[i].thread, &stacks, work, &members[i]) != 0)
			abort();
	}
	pthread_barrier_wait(&warm);
	if (count)
		count(&before);
	double start = cpu_seconds();
	pthread_barrier_wait(&measured);
	pthread_barrier_wait(&done);
	double operations = 2.0 * (OPERATIONS / 2 / threads) * threads;
	struct report report = {.nanoseconds = 1e9 * (cpu_seconds() - start) / operations,
				.resident = resident_bytes(),
				.counted = count != NULL};
	if (count) {
		count(&after);
		report.slow_paths = 1e6 / operations *
				    (double)(after.alloc_misses - before.alloc_misses + after.free_misses -
					     before.free_misses);
		report.lock_acquires =
			1e6 / operations * (double)(after.lock_acquires - before.lock_acquires);
	}
	pthread_barrier_wait(&measured);
	pthread_barrier_wait(&idle);
	report.idle = resident_bytes();
	int (*trim)(size_t) = (int (*)(size_t))dlsym(RTLD_DEFAULT, "malloc_trim"); /* musl has none */
	if (trim)
		trim(0);
	report.trimmed = resident_bytes();
	pthread_barrier_wait(&end);
	for (unsigned i = 0; i < threads; i++)
		pthread_join(members[i].thread, NULL);
	return session_reply(&report, sizeof(report)) ? 0 : 1;
}

/* ======== in the command ======== */

/* In the order of a report's values. */
static const struct {
	const char *name, *unit;
} metrics[] = {{"CPU time of a call", "ns"},
	       {"resident", "B"},
	       {"resident, all freed", "B"},
	       {"resident, trimmed", "B"},
	       {"slow paths in a million calls", "calls"},
	       {"lock acquisitions in a million", "calls"}};

enum { METRICS = sizeof(metrics) / sizeof(metrics[0]), COUNTED_ONLY = 4 };

static bool measure_scale(struct bench *bench, unsigned peer, bool warm_up, void *context)
{
	struct cell *cell = context;
	char *argv[] = {launch_program, "bench", "worker", "scale", (char *)cell->parameter, NULL};
	const char *name = bench->peers.list[peer].name;
	struct launch launch = {.argv = argv, .peer = &bench->peers.list[peer], .cpu = -1};
	struct report r;
	if (!launch_report(launch, &r, sizeof(r)))
		return false;
	if (warm_up)
		return true;
	const double values[] = {r.nanoseconds, r.resident, r.idle, r.trimmed, r.slow_paths, r.lock_acquires};
	for (unsigned i = 0; i < (r.counted ? METRICS : COUNTED_ONLY); i++) {
		cell->metric = metrics[i].name;
		cell->unit = metrics[i].unit;
		results_add(&bench->results, cell, name, ROLE_MEASURED, values[i]);
	}
	return true;
}

/*
 * On paper every curve of cpuslab is flat: each row needs what one thread needs.  (This excludes slots, which
 * are memory of a thread.)
 */
static void add_paper(struct bench *bench, const char *parameter)
{
	for (unsigned i = 0; i < METRICS; i++) {
		struct cell cell = {"scale", "threads", "1", metrics[i].name, metrics[i].unit, BETTER_LOWER};
		const struct series *one = results_find(&bench->results, &cell, "cpuslab");
		cell.parameter = parameter;
		if (one && !results_find(&bench->results, &cell, "on paper"))
			results_add(&bench->results, &cell, "on paper", ROLE_PUBLISHED,
				    median_of(one->samples, one->count));
	}
}

/* Runs the allocator once more, with a slot for each thread. */
static void add_slots(struct bench *bench)
{
	struct peers *peers = &bench->peers;
	struct results *results = &bench->results;
	const struct peer *ours = peers_named(peers, "cpuslab");
	if (!ours || peers->count == sizeof(peers->list) / sizeof(peers->list[0]))
		return;
	struct peer *slots = &peers->list[peers->count++];
	*slots = *ours;
	snprintf(slots->name, sizeof(slots->name), "cpuslab slots");
	results_fact(results->peers, &results->peer_count, sizeof(results->peers) / sizeof(results->peers[0]),
		     slots->name, "cpuslab with CPUSLAB_OPTIONS=vcpu:slot (group scale)");
	slots->environment = "CPUSLAB_OPTIONS=vcpu:slot";
}

bool group_scale(struct bench *bench)
{
	unsigned most = bench->settings.threads ? bench_threads(bench, THREADS_MAX) : THREADS_MAX,
		 found = bench->peers.count;
	if (!bench_asked_for(bench, "threads"))
		return true;
	add_slots(bench);
	for (unsigned threads = 1; threads <= most; threads *= 4) {
		char parameter[RESULTS_NAME];
		snprintf(parameter, sizeof(parameter), "%u", threads);
		struct cell cell = {"scale", "threads", parameter, "CPU time of a call", "ns", BETTER_LOWER};
		bench_rounds_of(bench, &cell, bench_rounds(bench, 5), measure_scale, &cell);
		add_paper(bench, parameter);
	}
	bench->peers.count = found;
	return true;
}
