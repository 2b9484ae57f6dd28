/* SPDX-License-Identifier: MIT */
/*
 * malloc_stress: threads stamp every byte they own and verify it before they give it up.
 *
 * An object that is handed out twice, lost in a free list, moved wrongly by realloc or written by the
 * allocator shows as a changed stamp.  Objects travel: a thread hands them to others through a mailbox, so
 * that every object may be freed on another CPU than the one that allocated it.
 *
 *   malloc_stress plain      a thread for each CPU and one more
 *   malloc_stress crowd      many more threads than CPUs: preemption at arbitrary instructions
 *   malloc_stress pinned     all of them on one CPU: every preemption hands the same words to another thread
 *   malloc_stress signals    timers that interrupt each thread some thousand times a second
 *   malloc_stress wander     threads that migrate from CPU to CPU all the time
 *   malloc_stress churn      short-lived threads: each inherits objects, leaves objects behind
 *   malloc_stress large      mostly page runs, which come, grow, shrink and go, while memory goes back
 *   malloc_stress forks      the same, and children that go on with what their parent's thread had
 *
 * A number behind the variant selects another run, for long searches.
 */
#include "check.h"

#include <malloc.h>
#include <time.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

struct object {
	void *memory;
	size_t size;
	uint64_t seed;
};

/* libc's: 0 where it registers no restartable sequences, which slots of threads use as well. */
extern const unsigned int __rseq_size __attribute__((weak));

enum { OWNED = 700, MAILBOXES = 64, LARGEST = 6 << 20 };

/* In larger objects a few bytes of each page are stamped: the library never divides a page of one. */
enum { SPARSE_FROM = 16 << 10, SPARSE_STEP = 4096, SPARSE_BYTES = 16 };

static struct mailbox {
	pthread_mutex_t lock;
	struct object object;
} mailboxes[MAILBOXES];

static struct {
	unsigned threads;
	unsigned long operations, generations;
	size_t owned; /* objects of a thread */
	uint64_t seed;
	bool pinned, signals, wander, large, forks;
} plan;

static unsigned long signals_seen;

/* From 32 KiB to 6 MiB, as many of each doubling; one in eight is small, so that slabs lie between them. */
static size_t random_large_size(uint64_t *random)
{
	if (check_below(random, 8) == 0)
		return 1 + check_below(random, 32 << 10);
	size_t least = (size_t)32 << 10 << check_below(random, 8);
	return least + check_below(random, least < LARGEST - least ? least : LARGEST - least);
}

/* Mostly small, as programs allocate: a few pages now and then, and rarely MiBs. */
static size_t random_size(uint64_t *random)
{
	if (plan.large)
		return random_large_size(random);
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

/* The next range to stamp, from `offset` on; *next is where to continue. */
static size_t stamped(size_t size, size_t offset, size_t *next)
{
	size_t bytes = size < SPARSE_FROM ? size : SPARSE_BYTES;
	*next = offset + (size < SPARSE_FROM ? size : SPARSE_STEP);
	return bytes < size - offset ? bytes : size - offset;
}

static void stamp(const struct object *object)
{
	for (size_t offset = 0, next; offset < object->size; offset = next) {
		size_t bytes = stamped(object->size, offset, &next);
		check_stamp((char *)object->memory + offset, bytes, object->seed + offset);
	}
}

/*
 * Verifies what was stamped as an object's first bytes, which may now be longer or shorter than the object.
 */
static void verify_first(const struct object *object, const void *memory, size_t size)
{
	for (size_t offset = 0, next; offset < size; offset = next) {
		size_t bytes = stamped(object->size, offset, &next);
		CHECK_STAMP((const char *)memory + offset, bytes < size - offset ? bytes : size - offset,
			    object->seed + offset);
	}
}

static void verify(const struct object *object)
{
	verify_first(object, object->memory, object->size);
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
	} else if (kind < 3 || (plan.large && kind > 7)) {
		object->memory = calloc(1, size);
		CHECK(object->memory);
		CHECK(check_all_bytes(object->memory, size, 0), "calloc of %zu bytes is not zero", size);
	} else {
		object->memory = malloc(size);
	}
	CHECK(object->memory, "%zu bytes", size);
	object->size = kind == 3 ? malloc_usable_size(object->memory) : size;
	stamp(object);
}

static void resize(struct object *object, uint64_t *random)
{
	size_t size = random_size(random);
	/* Like a growing vector, or by a little, which more often succeeds in place. */
	if (plan.large && check_below(random, 2))
		size = 1 + object->size / 2 + check_below(random, object->size + 1);
	if (size > LARGEST)
		size = LARGEST;
	verify(object);
	void *moved = realloc(object->memory, size);
	CHECK(moved);
	verify_first(object, moved, size < object->size ? size : object->size);
	*object = (struct object){moved, size, check_random(random)};
	stamp(object);
}

/* Never waits: skips a mailbox that another thread is using. */
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

/* Nothing but malloc and free, so that interruptions often hit one of them. */
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

/* Blocks of few lengths by turns, in all threads: such blocks stand by for reuse. */
static void come_and_go(uint64_t *random)
{
	size_t size = (size_t)200 << 10 << check_below(random, 3);
	for (uint64_t round = 0; round < 100; round++) {
		struct object object = {malloc(size), size, round};
		CHECK(object.memory);
		stamp(&object);
		release(&object);
	}
}

static void hop(uint64_t *random)
{
	cpu_set_t one;
	CPU_ZERO(&one);
	CPU_SET(check_below(random, (size_t)sysconf(_SC_NPROCESSORS_ONLN)), &one);
	sched_setaffinity(0, sizeof one, &one); /* refused for a CPU that is not ours: stay */
}

/*
 * A thread that wakes up preempts a running one: the more sleepers, the more preemptions at arbitrary
 * instructions.
 */
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

static void work_on(struct object *owned, unsigned long operations, uint64_t *random);

/* A child inherits the thread's objects: it verifies them, and goes on for a while. */
static void fork_and_work(struct object *owned, uint64_t *random)
{
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		check_watchdog(60);
		plan.forks = false;
		for (size_t i = 0; i < plan.owned; i++)
			if (owned[i].memory)
				verify(&owned[i]);
		work_on(owned, 100, random);
		for (size_t i = 0; i < plan.owned; i++)
			release(&owned[i]);
		_exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child ended with %#x", (unsigned)status);
}

static void work_on(struct object *owned, unsigned long operations, uint64_t *random)
{
	for (unsigned long operation = 0; operation < operations; operation++) {
		struct object *object = &owned[check_below(random, plan.owned)];
		unsigned choice = (unsigned)check_below(random, 64);
		if (choice == 0 && plan.large && check_below(random, 4) == 0) {
			come_and_go(random);
		} else if (choice == 0) {
			burst(random);
		} else if (choice == 1 && plan.wander) {
			hop(random);
		} else if (choice == 1 && plan.pinned) {
			doze(random);
		} else if (choice == 1 && plan.forks && check_below(random, 2) == 0) {
			fork_and_work(owned, random);
		} else if (choice == 2 && plan.large && check_below(random, 64) == 0) {
			malloc_trim(0);
		} else if (choice < (plan.large ? 8 : 20)) {
			exchange(object, random);
		} else if (!object->memory) {
			acquire(object, random);
		} else if (choice < (plan.large ? 34 : 26)) {
			resize(object, random);
		} else {
			release(object);
		}
	}
}

static void *work(void *argument)
{
	uint64_t random = 0x1234567 + ((uintptr_t)argument + (plan.seed << 32)) * 0x9e3779b97f4a7c15u;
	struct object *owned = calloc(plan.owned, sizeof *owned);
	timer_t timer = NULL;
	CHECK(owned);
	if (plan.pinned)
		check_pin();
	if (plan.signals) /* coprime periods: the threads' interruptions drift against each other */
		timer = start_timer(41000 + 1009 * (long)(uintptr_t)argument);
	work_on(owned, plan.operations, &random);
	if (plan.signals)
		timer_delete(timer);
	/* Leaves some objects behind for others, and frees the rest. */
	for (size_t i = 0; i < plan.owned; i++) {
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
	plan.owned = OWNED;
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
	} else if (strcmp(name, "large") == 0) {
		plan.large = true;
		plan.owned = 24;
		plan.operations /= 32;
	} else if (strcmp(name, "forks") == 0) {
		plan.large = plan.forks = true;
		plan.owned = 8;
		plan.operations /= 160;
	} else {
		CHECK(strcmp(name, "plain") == 0, "no variant '%s'", name);
	}
}

int main(int argc, char **argv)
{
	choose_plan(argc > 1 ? argv[1] : "plain");
	plan.seed = argc > 2 ? strtoul(argv[2], NULL, 0) : 0;
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
	/* Without aborts the run would prove nothing about them: continues until there were some. */
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
	if (check_cpuslab() && !check_rseq() && !(&__rseq_size && __rseq_size))
		CHECK(aborts == 0);
	printf("%s: %u threads, %lu signals, %llu aborted sections\n", check_mode(), plan.threads,
	       signals_seen, aborts);
	return 0;
}
