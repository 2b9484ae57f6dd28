/* SPDX-License-Identifier: MIT */
/*
 * bulk: batches of objects by cpuslab_cache_alloc_bulk and _free_bulk, against one call for each object.
 *
 *   held   10000 objects are allocated, batch by batch, and written; then all are freed: ticks per object
 *   pair   each batch is freed right after it was allocated: ticks per object, both ways
 *
 * cpuslab's column is the bulk calls on an object cache, "cpuslab single" one call for each object on the
 * same cache; every other allocator uses its malloc and free.
 */
#include "bench.h"

#include "launch.h"
#include "machine.h"
#include "pin.h"
#include "statistics.h"
#include "ticks.h"

#include <cpuslab/cache.h>

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { N = 10000, REPETITIONS = 9 };

struct request {
	size_t size, batch;
	bool cache, single; /* an object cache; one call for each object */
};

struct reply {
	double allocate, release, pair;
};

/* ======== in the worker ======== */

static struct cpuslab_cache *cache;
static __typeof__(cpuslab_cache_alloc) *cache_alloc;
static __typeof__(cpuslab_cache_free) *cache_free;
static __typeof__(cpuslab_cache_alloc_bulk) *cache_alloc_bulk;
static __typeof__(cpuslab_cache_free_bulk) *cache_free_bulk;
static void *(*heap_alloc)(size_t size);
static void (*heap_free)(void *object);

static bool find_functions(const struct request *request)
{
	heap_alloc = (void *(*)(size_t))dlsym(RTLD_DEFAULT, "malloc");
	heap_free = (void (*)(void *))dlsym(RTLD_DEFAULT, "free");
	if (!request->cache)
		return true;
	__typeof__(cpuslab_cache_create) *create =
		(__typeof__(cpuslab_cache_create) *)dlsym(RTLD_DEFAULT, "cpuslab_cache_create");
	cache_alloc = (__typeof__(cpuslab_cache_alloc) *)dlsym(RTLD_DEFAULT, "cpuslab_cache_alloc");
	cache_free = (__typeof__(cpuslab_cache_free) *)dlsym(RTLD_DEFAULT, "cpuslab_cache_free");
	cache_alloc_bulk =
		(__typeof__(cpuslab_cache_alloc_bulk) *)dlsym(RTLD_DEFAULT, "cpuslab_cache_alloc_bulk");
	cache_free_bulk =
		(__typeof__(cpuslab_cache_free_bulk) *)dlsym(RTLD_DEFAULT, "cpuslab_cache_free_bulk");
	struct cpuslab_cache_args args = {.name = "bulk", .size = request->size};
	if (create)
		cache = create(&args);
	return cache && cache_alloc && cache_free && cache_alloc_bulk && cache_free_bulk;
}

__attribute__((noinline)) static void take(const struct request *request, void **objects)
{
	if (!request->cache)
		for (size_t i = 0; i < request->batch; i++)
			objects[i] = heap_alloc(request->size);
	else if (request->single)
		for (size_t i = 0; i < request->batch; i++)
			objects[i] = cache_alloc(cache);
	else if (cache_alloc_bulk(cache, request->batch, objects) != request->batch)
		abort();
}

__attribute__((noinline)) static void give(const struct request *request, void **objects)
{
	if (!request->cache)
		for (size_t i = 0; i < request->batch; i++)
			heap_free(objects[i]);
	else if (request->single)
		for (size_t i = 0; i < request->batch; i++)
			cache_free(cache, objects[i]);
	else
		cache_free_bulk(cache, request->batch, objects);
}

static struct reply clock_batches(const struct request *request)
{
	static void *objects[N];
	size_t batch = request->batch, count = N / batch * batch;
	uint64_t start = ticks();
	for (size_t i = 0; i < count; i += batch) {
		take(request, objects + i);
		for (size_t n = i; n < i + batch; n++)
			*(char *)objects[n] = 1;
	}
	uint64_t allocated = ticks();
	for (size_t i = 0; i < count; i += batch)
		give(request, objects + i);
	uint64_t released = ticks();
	for (size_t i = 0; i < count; i += batch) {
		take(request, objects);
		give(request, objects);
	}
	uint64_t end = ticks();
	return (struct reply){.allocate = (double)(allocated - start) / (double)count,
			      .release = (double)(released - allocated) / (double)count,
			      .pair = (double)(end - released) / (double)count};
}

int worker_bulk(int argc, char **argv)
{
	double samples[3][REPETITIONS];
	struct request request;
	(void)argc;
	(void)argv;
	pin_to_cpu(machine_pinned_cpu());
	if (!session_receive(&request, sizeof(request)) || !find_functions(&request))
		return 1;
	clock_batches(&request);
	for (unsigned i = 0; i < REPETITIONS; i++) {
		struct reply once = clock_batches(&request);
		samples[0][i] = once.allocate;
		samples[1][i] = once.release;
		samples[2][i] = once.pair;
	}
	struct reply reply = {median_of(samples[0], REPETITIONS), median_of(samples[1], REPETITIONS),
			      median_of(samples[2], REPETITIONS)};
	return session_reply(&reply, sizeof(reply)) ? 0 : 1;
}

/* ======== in the command ======== */

struct context {
	struct cell cell;
	struct request request;
};

static bool measure_as(struct bench *bench, const struct peer *peer, const struct context *c, bool use_cache,
		       bool single, const char *column)
{
	struct request request = c->request;
	struct session session;
	struct reply reply;
	request.cache = use_cache;
	request.single = single;
	bool well = session_open(&session, peer, "bulk") &&
		    session_ask(&session, &request, sizeof(request), &reply, sizeof(reply));
	session_close(&session);
	if (!well)
		return false;
	const struct {
		const char *name;
		double value;
	} metrics[] = {{"alloc", reply.allocate}, {"free", reply.release}, {"pair", reply.pair}};
	struct cell cell = c->cell;
	for (unsigned i = 0; i < sizeof(metrics) / sizeof(metrics[0]); i++) {
		cell.metric = metrics[i].name;
		results_add(&bench->results, &cell, column, ROLE_MEASURED, metrics[i].value);
	}
	return true;
}

static bool measure_bulk(struct bench *bench, unsigned peer, bool warm_up, void *context)
{
	const struct peer *p = &bench->peers.list[peer];
	bool ours = strcmp(p->name, "cpuslab") == 0;
	if (warm_up)
		return true;
	return measure_as(bench, p, context, ours, false, p->name) &&
	       (!ours || measure_as(bench, p, context, true, true, "cpuslab single"));
}

bool group_bulk(struct bench *bench)
{
	static const size_t usual[] = {32, 256, 1024}, batches[] = {1, 4, 16, 64, 256};
	const struct settings *s = &bench->settings;
	const size_t *sizes = s->size_count ? s->sizes : usual;
	unsigned count = s->size_count ? s->size_count : sizeof(usual) / sizeof(usual[0]);
	for (unsigned i = 0; i < count; i++) {
		char test[RESULTS_NAME];
		snprintf(test, sizeof(test), "objects of %zu bytes", sizes[i]);
		if (!bench_asked_for(bench, test))
			continue;
		for (unsigned b = 0; b < sizeof(batches) / sizeof(batches[0]); b++) {
			char parameter[RESULTS_NAME];
			snprintf(parameter, sizeof(parameter), "batches of %zu", batches[b]);
			struct context context = {
				.cell = {"bulk", test, parameter, "pair", TICKS_UNIT, BETTER_LOWER},
				.request = {.size = sizes[i], .batch = batches[b]}};
			bench_rounds_of(bench, &context.cell, bench_rounds(bench, 9), measure_bulk, &context);
		}
	}
	return true;
}
