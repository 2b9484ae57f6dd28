/* SPDX-License-Identifier: MIT */
/*
 * kmalloc: the tests of the kernel's slab_test module, on malloc.  N = 10000 objects of one size.
 *
 *   1  N allocations, each writing byte 0; then N frees
 *   2  N pairs of an allocation and its free, untouched
 *   3  test 1 by a pinned thread on every CPU at once, with a barrier before the frees
 *   4  N touched pairs by a pinned thread on every CPU at once
 *   5  remote free: every other CPU allocates N, CPU 0 frees them all
 *   6  CPU 0 allocates N for every other CPU, and they free the objects as they come.  The module's consumers
 *      stop after N / CPUs objects and leak the rest, which is part of the published figures: "6 compat" does
 *      the same (and frees the rest untimed), "6" frees them all
 *
 * remote: one thread allocates and another frees, through a ring: the cost of one object's whole way.
 *
 * hardened: test 2, and test 4 on every CPU, on hardened mode and on allocators like it, beside cpuslab
 * without it and the system's malloc.  Test 4's processes have threads, which the modes' frees must handle;
 * test 2's have one.
 *
 * In tests 1 and 2 the empty functions of floor.c are measured in the same process, right beside: their
 * column is the floor.  Tests of several threads have none: all threads would write the one object of an
 * allocator that does nothing, and the cost of that is no floor.
 */
#include "bench.h"

#include "launch.h"
#include "machine.h"
#include "pin.h"
#include "published.h"
#include "statistics.h"
#include "ticks.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { N = 10000, THREADS_MAX = 64, REPETITIONS_MAX = 200 };

enum test {
	TEST_ALLOC_THEN_FREE,
	TEST_PAIR,
	TEST_PARALLEL_ALLOC_THEN_FREE,
	TEST_PARALLEL_PAIR,
	TEST_REMOTE_FREE,
	TEST_ONE_ALLOCATES,
	TEST_ONE_ALLOCATES_COMPAT,
	TEST_RING,
};

struct request {
	enum test test;
	unsigned threads;
	size_t size;
	double seconds; /* to spend, at least three repetitions; 0: one, to warm up */
};

struct thread_time {
	double first, second; /* ticks per call: allocations, frees; or pairs and 0 */
};

struct reply {
	struct thread_time average, floor;
	struct thread_time thread[THREADS_MAX];
};

/* ======== in the worker ======== */

struct allocator {
	void *(*allocate)(size_t size);
	void (*release)(void *object);
};

/* noinline, with the allocator by value: every allocator meets the same instructions in these loops. */
__attribute__((noinline)) static void allocate_all(struct allocator a, size_t size, void **objects)
{
	for (unsigned i = 0; i < N; i++) {
		char *object = a.allocate(size);
		*object = 22;
		objects[i] = object;
	}
}

__attribute__((noinline)) static void release_all(struct allocator a, void **objects)
{
	for (unsigned i = 0; i < N; i++)
		a.release(objects[i]);
}

__attribute__((noinline)) static void pairs_untouched(struct allocator a, size_t size)
{
	for (unsigned i = 0; i < N; i++)
		a.release(a.allocate(size));
}

__attribute__((noinline)) static void pairs_touched(struct allocator a, size_t size)
{
	for (unsigned i = 0; i < N; i++) {
		char *object = a.allocate(size);
		*object = 12;
		a.release(object);
	}
}

static struct thread_time single(struct allocator a, const struct request *request, void **objects)
{
	uint64_t start = ticks();
	if (request->test == TEST_PAIR) {
		pairs_untouched(a, request->size);
		return (struct thread_time){(double)(ticks() - start) / N, 0};
	}
	allocate_all(a, request->size, objects);
	uint64_t between = ticks();
	release_all(a, objects);
	return (struct thread_time){(double)(between - start) / N, (double)(ticks() - between) / N};
}

/* ---- several threads, each on a CPU of its own ---- */

enum { RING = 256 };

struct parallel {
	struct allocator allocator;
	const struct request *request;
	pthread_barrier_t barrier;
	struct member {
		struct parallel *parallel;
		unsigned index;
		struct thread_time time;
		_Atomic(void *) objects[N];
	} *members;
	_Alignas(64) _Atomic size_t written;
	_Alignas(64) _Atomic size_t read;
	_Atomic(void *) ring[RING];
};

/*
 * Spins as the kernel's module does; yields now and then, for the other side to run when there are fewer CPUs
 * than threads.
 */
static void relax(unsigned *spins)
{
	if (++*spins % 1024 == 0)
		sched_yield();
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
}

static void produce_for_others(struct parallel *p)
{
	for (unsigned i = 0; i < N; i++)
		for (unsigned other = 1; other < p->request->threads; other++) {
			char *object = p->allocator.allocate(p->request->size);
			*object = 17;
			atomic_store_explicit(&p->members[other].objects[i], object, memory_order_release);
		}
}

static void consume(struct member *m, unsigned from, unsigned to)
{
	unsigned spins = 0;
	for (unsigned i = from; i < to; i++) {
		char *object;
		while (!(object = atomic_load_explicit(&m->objects[i], memory_order_acquire)))
			relax(&spins);
		*object = 17;
		m->parallel->allocator.release(object);
		atomic_store_explicit(&m->objects[i], NULL, memory_order_relaxed);
	}
}

static void ring_produce(struct parallel *p)
{
	unsigned spins = 0;
	for (size_t i = 0; i < N; i++) {
		while (i - atomic_load_explicit(&p->read, memory_order_acquire) == RING)
			relax(&spins);
		char *object = p->allocator.allocate(p->request->size);
		*object = 17;
		atomic_store_explicit(&p->ring[i % RING], object, memory_order_relaxed);
		atomic_store_explicit(&p->written, i + 1, memory_order_release);
	}
}

static void ring_consume(struct parallel *p)
{
	unsigned spins = 0;
	for (size_t i = 0; i < N; i++) {
		while (atomic_load_explicit(&p->written, memory_order_acquire) == i)
			relax(&spins);
		char *object = atomic_load_explicit(&p->ring[i % RING], memory_order_relaxed);
		*object = 16;
		p->allocator.release(object);
		atomic_store_explicit(&p->read, i + 1, memory_order_release);
	}
}

static void first_phase(struct member *m)
{
	struct parallel *p = m->parallel;
	switch (p->request->test) {
	case TEST_PARALLEL_ALLOC_THEN_FREE:
		allocate_all(p->allocator, p->request->size, (void **)m->objects);
		return;
	case TEST_PARALLEL_PAIR:
		pairs_touched(p->allocator, p->request->size);
		return;
	case TEST_REMOTE_FREE:
		if (m->index > 0)
			allocate_all(p->allocator, p->request->size, (void **)m->objects);
		return;
	case TEST_ONE_ALLOCATES:
	case TEST_ONE_ALLOCATES_COMPAT:
		if (m->index == 0)
			produce_for_others(p);
		else
			consume(m, 0, p->request->test == TEST_ONE_ALLOCATES ? N : N / p->request->threads);
		return;
	case TEST_RING:
		if (m->index == 0)
			ring_produce(p);
		else if (m->index == 1)
			ring_consume(p);
		return;
	case TEST_ALLOC_THEN_FREE:
	case TEST_PAIR:
		return;
	}
}

static void second_phase(struct member *m)
{
	struct parallel *p = m->parallel;
	if (p->request->test == TEST_PARALLEL_ALLOC_THEN_FREE) {
		release_all(p->allocator, (void **)m->objects);
	} else if (p->request->test == TEST_REMOTE_FREE && m->index == 0) {
		for (unsigned other = 1; other < p->request->threads; other++)
			for (unsigned i = 0; i < N; i++) {
				char *object = p->members[other].objects[i];
				*object = 16;
				p->allocator.release(object);
			}
	}
}

static void *member_main(void *argument)
{
	struct member *m = argument;
	struct parallel *p = m->parallel;
	pin_to_place(m->index);
	/* Touched before the clock starts: the array's own page faults must not count. */
	memset((void *)m->objects, 0, sizeof(m->objects));
	pthread_barrier_wait(&p->barrier);
	uint64_t start = ticks();
	first_phase(m);
	uint64_t end = ticks();
	m->time.first = (double)(end - start) / N;
	pthread_barrier_wait(&p->barrier);
	start = ticks();
	second_phase(m);
	m->time.second = (double)(ticks() - start) / N;
	pthread_barrier_wait(&p->barrier);
	if (p->request->test == TEST_ONE_ALLOCATES_COMPAT && m->index > 0)
		consume(m, N / p->request->threads, N);
	return NULL;
}

static struct thread_time parallel(struct allocator a, const struct request *request,
				   struct thread_time *times)
{
	static struct parallel p;
	static struct member members[THREADS_MAX];
	pthread_t thread[THREADS_MAX];
	p.allocator = a;
	p.request = request;
	p.members = members;
	p.written = p.read = 0;
	pthread_barrier_init(&p.barrier, NULL, request->threads);
	for (unsigned i = 0; i < request->threads; i++) {
		members[i].parallel = &p;
		members[i].index = i;
		if (pthread_create(&thread[i], NULL, member_main, &members[i]) != 0)
			abort();
	}
	struct thread_time sum = {0};
	for (unsigned i = 0; i < request->threads; i++) {
		pthread_join(thread[i], NULL);
		times[i] = members[i].time;
		sum.first += times[i].first;
		sum.second += times[i].second;
	}
	pthread_barrier_destroy(&p.barrier);
	/*
	 * If one thread works for all others, its time for one of them is the cost; if all work, the mean is.
	 */
	unsigned others = request->threads - 1;

	if (request->test == TEST_REMOTE_FREE)
		return (struct thread_time){(sum.first - times[0].first) / others, times[0].second / others};
	if (request->test == TEST_RING)
		return (struct thread_time){times[1].first, 0};
	if (request->test == TEST_PARALLEL_PAIR)
		sum.second = 0;
	if (request->test == TEST_ONE_ALLOCATES || request->test == TEST_ONE_ALLOCATES_COMPAT)
		return (struct thread_time){times[0].first / others, (sum.first - times[0].first) / others};
	return (struct thread_time){sum.first / request->threads, sum.second / request->threads};
}

static void answer(struct allocator a, struct allocator nothing, const struct request *request,
		   struct reply *reply)
{
	static double samples[4][REPETITIONS_MAX], threads[2][THREADS_MAX][REPETITIONS_MAX];
	static void *objects[N];
	double start = seconds_now();
	unsigned count = 0, least = request->seconds > 0 ? 3 : 1;
	while (count < REPETITIONS_MAX && (count < least || seconds_now() - start < request->seconds)) {
		struct thread_time lowest = {0}, time;
		if (request->test <= TEST_PAIR)
			lowest = single(nothing, request, objects);
		time = request->test <= TEST_PAIR ? single(a, request, objects)
						  : parallel(a, request, reply->thread);
		samples[0][count] = time.first;
		samples[1][count] = time.second;
		samples[2][count] = lowest.first;
		samples[3][count] = lowest.second;
		for (unsigned t = 0; t < request->threads && request->test > TEST_PAIR; t++) {
			threads[0][t][count] = reply->thread[t].first;
			threads[1][t][count] = reply->thread[t].second;
		}
		count++;
	}
	reply->average = (struct thread_time){median_of(samples[0], count), median_of(samples[1], count)};
	reply->floor = (struct thread_time){median_of(samples[2], count), median_of(samples[3], count)};
	for (unsigned t = 0; t < request->threads && request->test > TEST_PAIR; t++)
		reply->thread[t] = (struct thread_time){median_of(threads[0][t], count),
							median_of(threads[1][t], count)};
}

static bool load_floor(struct allocator *nothing)
{
	char path[PATH_MAX];
	void *library =
		launch_beside("libcpuslab-floor.so", path) ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
	if (!library)
		return false;
	nothing->allocate = (void *(*)(size_t))dlsym(library, "floor_allocate");
	nothing->release = (void (*)(void *))dlsym(library, "floor_release");
	return nothing->allocate && nothing->release;
}

int worker_kmalloc(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	struct allocator nothing, a = {(void *(*)(size_t))dlsym(RTLD_DEFAULT, "malloc"),
				       (void (*)(void *))dlsym(RTLD_DEFAULT, "free")};
	struct request request;
	if (!load_floor(&nothing)) {
		fputs("cpuslab bench: libcpuslab-floor.so is missing\n", stderr);
		return 1;
	}
	pin_begin();
	while (session_receive(&request, sizeof(request))) {
		struct reply reply = {0};
		if (request.threads > THREADS_MAX)
			return 1;
		if (request.test <= TEST_PAIR)
			pin_to_cpu(machine_pinned_cpu());
		else
			pin_to_none();
		answer(a, nothing, &request, &reply);
		if (!session_reply(&reply, sizeof(reply)))
			return 1;
	}
	return 0;
}

/* ======== in the command ======== */

static const struct description {
	const char *name, *first, *second;
	bool quick; /* in the two-minute subset */
} descriptions[] = {
	[TEST_ALLOC_THEN_FREE] = {"1 alloc, then free", "alloc", "free", true},
	[TEST_PAIR] = {"2 pair", "pair", NULL, true},
	[TEST_PARALLEL_ALLOC_THEN_FREE] = {"3 all CPUs: alloc, then free", "alloc", "free", false},
	[TEST_PARALLEL_PAIR] = {"4 all CPUs: pair", "pair", NULL, false},
	[TEST_REMOTE_FREE] = {"5 remote free", "alloc", "remote free", false},
	[TEST_ONE_ALLOCATES] = {"6 one allocates, others free", "alloc", "free", false},
	[TEST_ONE_ALLOCATES_COMPAT] = {"6 compat", "alloc", "free", false},
	[TEST_RING] = {"remote: through a ring", "object", NULL, true},
};

struct context {
	const char *group, *title; /* no title: the test's own name */
	struct request request;
	struct cell cell;
	struct reply last[24];
};

static void record(struct bench *bench, struct context *c, const char *peer, const struct reply *reply)
{
	const struct description *d = &descriptions[c->request.test];
	c->cell.metric = d->first;
	results_add(&bench->results, &c->cell, peer, ROLE_MEASURED, reply->average.first);
	if (d->second) {
		c->cell.metric = d->second;
		results_add(&bench->results, &c->cell, peer, ROLE_MEASURED, reply->average.second);
	}
	/*
	 * One floor for the table: every process measures the same, and cpuslab's (or the first one's) is
	 * shown.
	 */
	if (c->request.test > TEST_PAIR || strcmp(peer, bench->peers.list[0].name) != 0)
		return;
	c->cell.metric = d->first;
	results_add(&bench->results, &c->cell, "floor", ROLE_FLOOR, reply->floor.first);
	if (d->second) {
		c->cell.metric = d->second;
		results_add(&bench->results, &c->cell, "floor", ROLE_FLOOR, reply->floor.second);
	}
}

/*
 * Each round has a process of its own: where a process's pages and code happen to lie is luck, which would
 * otherwise last for all rounds and pass for a property of the allocator.
 */
static bool measure_kmalloc(struct bench *bench, unsigned peer, bool warm_up, void *context)
{
	struct context *c = context;
	struct reply *reply = &c->last[peer];
	struct request first = c->request;
	struct session session;
	if (warm_up)
		return true;
	first.seconds = 0;
	bool well = session_open(&session, &bench->peers.list[peer], "kmalloc") &&
		    session_ask(&session, &first, sizeof(first), reply, sizeof(*reply)) &&
		    session_ask(&session, &c->request, sizeof(c->request), reply, sizeof(*reply));
	session_close(&session);
	if (well)
		record(bench, c, bench->peers.list[peer].name, reply);
	return well;
}

/* Prints the kernel module's format, so that both can be read side by side. */
static void print_seed_lines(const struct bench *bench, const struct context *c)
{
	for (unsigned i = 0; i < bench->peers.count; i++) {
		const struct reply *r = &c->last[i];
		printf("%-11s ", bench->peers.list[i].name);
		switch (c->request.test) {
		case TEST_ALLOC_THEN_FREE:
			printf("%u times kmalloc(%zu) -> %.0f cycles kfree -> %.0f cycles\n", N,
			       c->request.size, r->average.first, r->average.second);
			continue;
		case TEST_PAIR:
			printf("%u times kmalloc(%zu)/kfree -> %.0f cycles\n", N, c->request.size,
			       r->average.first);
			continue;
		case TEST_PARALLEL_ALLOC_THEN_FREE:
			printf("Kmalloc N*alloc N*free(%zu):", c->request.size);
			break;
		case TEST_PARALLEL_PAIR:
			printf("Kmalloc N*(alloc free)(%zu):", c->request.size);
			break;
		case TEST_REMOTE_FREE:
			printf("N*remote free(%zu):", c->request.size);
			break;
		case TEST_ONE_ALLOCATES:
		case TEST_ONE_ALLOCATES_COMPAT:
			printf("1 alloc N free(%zu):", c->request.size);
			break;
		case TEST_RING:
			printf("ring(%zu):", c->request.size);
			break;
		}
		/* The module's average is over all CPUs, idle ones included. */
		struct thread_time sum = {0};
		for (unsigned t = 0; t < c->request.threads; t++) {
			printf(" %u=%.0f/%.0f", t, r->thread[t].first, r->thread[t].second);
			sum.first += r->thread[t].first;
			sum.second += r->thread[t].second;
		}
		printf(" Average=%.0f/%.0f\n", sum.first / c->request.threads,
		       sum.second / c->request.threads);
	}
}

/* Beside tests 1 to 3, for which the seeds publish figures. */
static void add_published(struct bench *bench, struct cell cell, enum test test, size_t size)
{
	static const char *const columns[] = {
		[PUBLISHED_PER_CPU] = "kernel 2007",
		[PUBLISHED_EMULATED] = "2007 emulated",
		[PUBLISHED_BEFORE] = "kernel 2014",
		[PUBLISHED_AFTER] = "with seed 001",
	};
	const char *const metrics[] = {descriptions[test].first, descriptions[test].second};
	for (unsigned m = 0; m < 2 && metrics[m]; m++)
		for (enum published kernel = 0; kernel < sizeof(columns) / sizeof(columns[0]); kernel++) {
			cell.metric = metrics[m];
			published_add(&bench->results, cell, kernel, 1 + test, size, columns[kernel]);
		}
}

static void run_test(struct bench *bench, struct context *c, enum test test, const size_t *sizes,
		     unsigned count)
{
	const struct description *d = &descriptions[test];
	unsigned rounds = bench_rounds(bench, bench->settings.quick ? 7 : 11);
	for (unsigned i = 0; i < count; i++) {
		char parameter[RESULTS_NAME];
		snprintf(parameter, sizeof(parameter), "%zu", sizes[i]);
		c->request.test = test;
		c->request.size = sizes[i];
		c->request.seconds = bench->settings.quick ? 0.008 : 0.02;
		c->cell = (struct cell){c->group,   c->title ? c->title : d->name,
					parameter,  d->first,
					TICKS_UNIT, BETTER_LOWER};
		bool present = results_have(&bench->results, c->group, c->cell.test, parameter,
					    bench->peers.list[0].name, rounds);
		bench_rounds_of(bench, &c->cell, rounds, measure_kmalloc, c);
		if (present)
			continue;
		if (bench->settings.seed_lines)
			print_seed_lines(bench, c);
		if (!c->title)
			add_published(bench, c->cell, test, sizes[i]);
	}
}

bool group_kmalloc(struct bench *bench)
{
	static const size_t usual[] = {8,    16,   32,   64,   128,   256,   512,
				       1024, 2048, 4096, 8192, 16384, 32768, 65536};
	static const size_t few[] = {8, 16, 64, 256, 1024, 4096, 16384};
	const struct settings *s = &bench->settings;
	const size_t *sizes = s->size_count ? s->sizes : s->quick ? few : usual;
	unsigned count = s->size_count ? s->size_count
			 : s->quick    ? sizeof(few) / sizeof(few[0])
				       : sizeof(usual) / sizeof(usual[0]);
	struct context context = {.group = "kmalloc", .request.threads = bench_threads(bench, THREADS_MAX)};
	for (enum test test = 0; test < sizeof(descriptions) / sizeof(descriptions[0]); test++) {
		if ((s->quick && !descriptions[test].quick) ||
		    !bench_asked_for(bench, descriptions[test].name))
			continue;
		/* The tests of several CPUs need a second one. */
		if (test > TEST_PAIR && context.request.threads < 2) {
			results_note(&bench->results, "kmalloc tests 3 to 6", "left out: they need two CPUs");
			break;
		}
		run_test(bench, &context, test, sizes, count);
	}
	return true;
}

/* Keeps the allocators that hardened ones are compared with, unless the call names others. */
static void keep_usual(struct peers *peers)
{
	unsigned kept = 0;
	for (unsigned i = 0; i < peers->count; i++)
		if (strcmp(peers->list[i].name, "cpuslab") == 0 || strcmp(peers->list[i].name, "glibc") == 0)
			peers->list[kept++] = peers->list[i];
	peers->count = kept;
}

bool group_hardened(struct bench *bench)
{
	static const size_t usual[] = {16, 32, 64, 128, 256};
	const struct settings *s = &bench->settings;
	const size_t *sizes = s->size_count ? s->sizes : usual;
	unsigned count = s->size_count ? s->size_count : sizeof(usual) / sizeof(usual[0]);
	static struct peers all;
	struct context context = {
		.group = "hardened", .title = "pair", .request.threads = bench_threads(bench, THREADS_MAX)};
	all = bench->peers;
	if (!s->peers_named)
		keep_usual(&bench->peers);
	peers_add_hardened(&bench->peers, &bench->results);
	if (bench_asked_for(bench, context.title))
		run_test(bench, &context, TEST_PAIR, sizes, count);
	context.title = "all CPUs: pair";
	if (bench_asked_for(bench, context.title) && context.request.threads > 1)
		run_test(bench, &context, TEST_PARALLEL_PAIR, sizes, count);
	bench->peers = all;
	return true;
}
