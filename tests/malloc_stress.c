/* SPDX-License-Identifier: MIT */
/*
 * malloc_stress: threads that stamp every byte they own and verify it before they give it up.
 *
 * An object that is handed out twice, lost in a free list, moved wrongly by realloc or written by the
 * allocator shows as a changed stamp.  Objects travel: a thread hands them to others through a mailbox, so
 * that every object may be freed on another CPU than the one that allocated it.
 *
 *   malloc_stress plain      a thread for each CPU and one more
 *   malloc_stress crowd      many more threads than CPUs: preemption at arbitrary instructions
 *   malloc_stress pinned     all of them on one CPU: every preemption hands the same words to somebody else
 *   malloc_stress signals    timers that interrupt each thread some thousand times a second
 *   malloc_stress wander     threads that migrate from CPU to CPU all the time
 *   malloc_stress churn      short threads: each inherits objects, leaves objects behind
 */
#include "check.h"

#include <time.h>
#include <sys/syscall.h>

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

struct object {
	void *memory;
	size_t size;
	uint64_t seed;
};

enum { OWNED = 700, MAILBOXES = 64, LARGEST = 6 << 20 };

static struct mailbox {
	pthread_mutex_t lock;
	struct object object;
} mailboxes[MAILBOXES];

static struct {
	unsigned threads;
	unsigned long operations, generations;
	bool pinned, signals, wander;
} plan;

static unsigned long signals_seen;

/* Mostly small, as programs allocate: a few pages now and then, and rarely MiBs. */
static size_t random_size(uint64_t *random)
{
	uint64_t dice = check_random(random) >> 40;
	if (dice % 8 < 5)
		return 1 + check_below(random, 256);
	if (dice % 8 < 7)
		return 1 + check_below(random, 2048);
	if (dice % 64 != 7)
		return 1 + check_below(random, 40000);
	if (dice % 1024 != 7)
		return 1 + check_below(random, 400000);
	return 1 + check_below(random, LARGEST);
}

static void verify(const struct object *object)
{
	CHECK_STAMP(object->memory, object->size, object->seed);
}

static void release(struct object *object)
{
	if (!object->memory)
		return;
	verify(object);
	memset(object->memory, 0xdd, object->size < 64 ? object->size : 64);
	free(object->memory);
	object->memory = NULL;
}

static void acquire(struct object *object, uint64_t *random)
{
	size_t size = random_size(random);
	unsigned kind = (unsigned)check_below(random, 16);
	object->seed = check_random(random);
	if (kind == 0) {
		size_t alignment = (size_t)16 << check_below(random, 9);
		object->memory = aligned_alloc(alignment, size);
		CHECK((uintptr_t)object->memory % alignment == 0);
	} else if (kind < 3) {
		object->memory = calloc(1, size);
		CHECK(object->memory);
		CHECK(check_all_bytes(object->memory, size, 0), "calloc of %zu bytes is not zero", size);
	} else {
		object->memory = malloc(size);
	}
	CHECK(object->memory, "%zu bytes", size);
	object->size = kind == 3 ? malloc_usable_size(object->memory) : size;
	check_stamp(object->memory, object->size, object->seed);
}

static void resize(struct object *object, uint64_t *random)
{
	size_t size = random_size(random);
	verify(object);
	void *moved = realloc(object->memory, size);
	CHECK(moved);
	CHECK_STAMP(moved, size < object->size ? size : object->size, object->seed);
	*object = (struct object){moved, size, check_random(random)};
	check_stamp(moved, size, object->seed);
}

/* Never waits: a mailbox that somebody looks into is left alone. */
static void exchange(struct object *object, uint64_t *random)
{
	struct mailbox *mailbox = &mailboxes[check_below(random, MAILBOXES)];
	if (pthread_mutex_trylock(&mailbox->lock) != 0)
		return;
	struct object received = mailbox->object;
	mailbox->object = *object;
	pthread_mutex_unlock(&mailbox->lock);
	*object = received;
}

/* Nothing but malloc and free, so that an interruption often falls into one of them. */
static void burst(uint64_t *random)
{
	enum { DEPTH = 24 };
	uint64_t *objects[DEPTH];
	size_t size = 8 + check_below(random, 500);
	for (unsigned round = 0; round < 40; round++) {
		for (unsigned i = 0; i < DEPTH; i++) {
			objects[i] = malloc(size);
			*objects[i] = (uint64_t)(uintptr_t)&objects[i] ^ round;
		}
		for (unsigned i = 0; i < DEPTH; i++) {
			CHECK(*objects[i] == ((uint64_t)(uintptr_t)&objects[i] ^ round), "%p has two owners",
			      (void *)objects[i]);
			free(objects[i]);
		}
	}
}

static void hop(uint64_t *random)
{
	cpu_set_t one;
	CPU_ZERO(&one);
	CPU_SET(check_below(random, (size_t)sysconf(_SC_NPROCESSORS_ONLN)), &one);
	sched_setaffinity(0, sizeof one, &one); /* refused for a CPU that is not ours: stay */
}

/* Who wakes up preempts who runs: the more sleepers, the more preemptions at arbitrary instructions. */
static void doze(uint64_t *random)
{
	struct timespec moment = {0, 1000 + (long)check_below(random, 100000)};
	nanosleep(&moment, NULL);
}

static void on_signal(int number)
{
	(void)number;
	__atomic_fetch_add(&signals_seen, 1, __ATOMIC_RELAXED);
}

static timer_t start_timer(long period)
{
	struct sigevent event;
	memset(&event, 0, sizeof event);
	event.sigev_notify = SIGEV_THREAD_ID;
	event.sigev_signo = SIGUSR1;
	event.sigev_notify_thread_id = (int)syscall(SYS_gettid);
	timer_t timer;
	CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
	struct itimerspec every = {{0, period}, {0, period}};
	CHECK(timer_settime(timer, 0, &every, NULL) == 0);
	return timer;
}

static void *work(void *argument)
{
	uint64_t random = 0x1234567 + (uint64_t)(uintptr_t)argument * 0x9e3779b97f4a7c15u;
	struct object *owned = calloc(OWNED, sizeof *owned);
	timer_t timer = NULL;
	CHECK(owned);
	if (plan.pinned)
		check_pin();
	if (plan.signals) /* periods that share no divisor: the threads' interruptions drift against each
			     other */
		timer = start_timer(41000 + 1009 * (long)(uintptr_t)argument);
	for (unsigned long operation = 0; operation < plan.operations; operation++) {
		struct object *object = &owned[check_below(&random, OWNED)];
		unsigned choice = (unsigned)check_below(&random, 64);
		if (choice == 0) {
			burst(&random);
		} else if (choice == 1 && plan.wander) {
			hop(&random);
		} else if (choice == 1 && plan.pinned) {
			doze(&random);
		} else if (choice < 20) {
			exchange(object, &random);
		} else if (!object->memory) {
			acquire(object, &random);
		} else if (choice < 26) {
			resize(object, &random);
		} else {
			release(object);
		}
	}
	if (plan.signals)
		timer_delete(timer);
	/* Some of it stays behind for others, the rest goes back. */
	for (size_t i = 0; i < OWNED; i++) {
		if (i % 8 == 0)
			exchange(&owned[i], &random);
		release(&owned[i]);
	}
	free(owned);
	return NULL;
}

static void choose_plan(const char *name)
{
	unsigned cpus = check_cpus();
	plan.operations = check_rounds(200000, 3000000, 1500);
	plan.threads = cpus + 1 < 16 ? cpus + 1 : 16;
	plan.generations = 1;
	if (strcmp(name, "crowd") == 0) {
		plan.threads = check_valgrind() ? 6 : 8 * plan.threads;
		plan.operations /= 8;
	} else if (strcmp(name, "pinned") == 0) {
		plan.threads = 6;
		plan.operations /= 2;
		plan.pinned = true;
	} else if (strcmp(name, "signals") == 0) {
		plan.signals = true;
	} else if (strcmp(name, "wander") == 0) {
		plan.wander = true;
		plan.threads *= 2;
		plan.operations /= 2;
	} else if (strcmp(name, "churn") == 0) {
		plan.threads = check_valgrind() ? 3 : 8;
		plan.generations = check_valgrind() ? 4 : 60;
		plan.operations /= 100;
	} else {
		CHECK(strcmp(name, "plain") == 0, "no variant '%s'", name);
	}
}

int main(int argc, char **argv)
{
	choose_plan(argc > 1 ? argv[1] : "plain");
	check_watchdog(120);
	struct sigaction action;
	memset(&action, 0, sizeof action);
	action.sa_handler = on_signal;
	action.sa_flags = SA_RESTART;
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	for (int i = 0; i < MAILBOXES; i++)
		pthread_mutex_init(&mailboxes[i].lock, NULL);
	free(malloc(1));
	struct cpuslab_counters before = check_counters();

	uintptr_t number = 0;
	pthread_t threads[256];
	CHECK(plan.threads <= 256);
	bool needs_aborts = check_rseq() && (plan.signals || plan.pinned);
	unsigned long long aborts = 0;
	/* Without aborts the run would prove nothing about them: go on until there were some. */
	for (unsigned long generation = 0;
	     generation < plan.generations ||
	     (needs_aborts && aborts < 10 && generation < plan.generations + 20);
	     generation++) {
		for (unsigned i = 0; i < plan.threads; i++)
			threads[i] = check_thread(work, (void *)++number);
		for (unsigned i = 0; i < plan.threads; i++)
			check_join(threads[i]);
		aborts = check_counters().section_aborts - before.section_aborts;
	}
	for (int i = 0; i < MAILBOXES; i++)
		release(&mailboxes[i].object);

	if (plan.signals && !check_valgrind())
		CHECK(signals_seen > 100, "the timers did not run: %lu signals", signals_seen);
	if (needs_aborts)
		CHECK(aborts > 0, "no restartable section was interrupted");
	if (check_cpuslab() && !check_rseq())
		CHECK(aborts == 0);
	printf("%s: %u threads, %lu signals, %llu aborted sections\n", check_mode(), plan.threads,
	       signals_seen, aborts);
	return 0;
}
