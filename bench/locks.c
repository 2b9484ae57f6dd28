/* SPDX-License-Identifier: MIT */
/*
 * locks: the library's locks beside the bare instructions and beside other people's locks, in one process.
 *
 *   alone       uncontended lock + unlock, in a process with threads: ticks, and the ratio to the bare
 *               compare-and-exchange + locked and
 *   migratory   one lock that goes to and fro between two CPUs after runs of k acquisitions: what a
 *               remote and a local acquisition cost with and without the demoting unlock
 *   contended   2, 8, 64 and 512 threads, with and without work inside and outside: acquisitions a
 *               second, and the longest that any thread waited
 *
 * Windows are short and interleaved: each lock in turn, then again.  Where threads do not outnumber the CPUs
 * they are pinned and, where the system allows it, have real-time priority, and a window in which a thread
 * lost its CPU (involuntary switches, or time stolen by the hypervisor) is thrown away and measured again.
 * Figures are medians over the windows, with the minimum beside it where time is what is measured.
 */
#include "ticks.h"

#include <cpuslab/lock.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

int bench_locks(int argc, char **argv);

#define NOINLINE   __attribute__((noinline))
#define OWN_LINES  __attribute__((aligned(128)))
#define LENGTH(of) (sizeof(of) / sizeof *(of))

enum { WINDOWS_MAX = 200, PAIRS = 20000, ATTEMPTS = 20 };

/* ---- statistics
 * -------------------------------------------------------------------------------------------- */

struct samples {
	double value[WINDOWS_MAX];
	unsigned count;
};

static int compare_values(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;

	return (a > b) - (a < b);
}

static double quantile(struct samples *samples, double share)
{
	if (samples->count == 0)
		return 0;
	qsort(samples->value, samples->count, sizeof samples->value[0], compare_values);
	return samples->value[(unsigned)(share * (samples->count - 1) + 0.5)];
}

static void add_sample(struct samples *samples, double value)
{
	if (samples->count < WINDOWS_MAX)
		samples->value[samples->count++] = value;
}

/* ---- the locks
 * ---------------------------------------------------------------------------------------------- */

static struct {
	struct cpuslab_pagelock page OWN_LINES;
	struct cpuslab_spinlock spin OWN_LINES;
	struct cpuslab_spinlock demoting OWN_LINES;
	struct cpuslab_mcs mcs OWN_LINES;
	pthread_mutex_t mutex OWN_LINES;
	pthread_spinlock_t pthread_spin OWN_LINES;
	uint32_t bare OWN_LINES;
	uintptr_t nsync[8] OWN_LINES; /* an nsync_mu is two words, and all zero is unlocked */
} locks = {.demoting = CPUSLAB_SPINLOCK_INITIALIZER_DEMOTE, .mutex = PTHREAD_MUTEX_INITIALIZER};

static void (*nsync_lock)(void *), (*nsync_unlock)(void *);
static void (*parking_lot_pairs)(uint64_t), (*parking_lot_lock)(void), (*parking_lot_unlock)(void);
static __thread struct cpuslab_mcs_node node;

static NOINLINE void never(void)
{
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

/* The least that a byte lock with user flags can do, with nobody to wake. */
static inline void bare_lock(void)
{
	uint8_t seen = 0;

	if (__builtin_expect(!__atomic_compare_exchange_n((uint8_t *)&locks.bare, &seen, 1, false,
							  __ATOMIC_ACQUIRE, __ATOMIC_RELAXED),
			     0))
		never();
}

static inline void bare_unlock(void)
{
	__atomic_fetch_and((uint8_t *)&locks.bare, (uint8_t)~1, __ATOMIC_RELEASE);
}

/* What the page lock's unlock replaced: clear the bit, then look at the byte again. */
static inline void two_step_unlock(void)
{
	__atomic_fetch_and(&locks.page.byte, (uint8_t)~1, __ATOMIC_RELEASE);
	if (__builtin_expect(*(volatile uint8_t *)&locks.page.byte & CPUSLAB_PAGELOCK_WAITERS, 0))
		never();
}

static inline void bit_lock(void)
{
	if (__builtin_expect(__atomic_fetch_or(&locks.bare, 1, __ATOMIC_ACQUIRE) & 1, 0))
		never();
}

/* The spinlock as it would be without the asymmetric barrier: the word says whether somebody is parked. */
static inline void exchange_lock(void)
{
	uint32_t seen = 0;

	if (__builtin_expect(!__atomic_compare_exchange_n(&locks.bare, &seen, 1, false, __ATOMIC_ACQUIRE,
							  __ATOMIC_RELAXED),
			     0))
		never();
}

static inline void exchange_unlock(void)
{
	if (__builtin_expect(__atomic_exchange_n(&locks.bare, 0, __ATOMIC_RELEASE) != 1, 0))
		never();
}

#define PAIRS_OF(name, lock, unlock)                                                                         \
	static NOINLINE void name##_pairs(uint64_t pairs)                                                    \
	{                                                                                                    \
		for (; pairs > 0; pairs--) {                                                                 \
			lock;                                                                                \
			unlock;                                                                              \
		}                                                                                            \
	}

PAIRS_OF(empty, __atomic_signal_fence(__ATOMIC_SEQ_CST), (void)0)
PAIRS_OF(bare, bare_lock(), bare_unlock())
PAIRS_OF(page, cpuslab_pagelock_lock(&locks.page), cpuslab_pagelock_unlock(&locks.page))
PAIRS_OF(two_step, cpuslab_pagelock_lock(&locks.page), two_step_unlock())
PAIRS_OF(bit, bit_lock(), bare_unlock())
PAIRS_OF(spin, cpuslab_spin_lock(&locks.spin), cpuslab_spin_unlock(&locks.spin))
PAIRS_OF(demoting, cpuslab_spin_lock(&locks.demoting), cpuslab_spin_unlock(&locks.demoting))
PAIRS_OF(exchange, exchange_lock(), exchange_unlock())
PAIRS_OF(mcs, cpuslab_mcs_lock(&locks.mcs, &node), cpuslab_mcs_unlock(&locks.mcs, &node))
PAIRS_OF(mutex, pthread_mutex_lock(&locks.mutex), pthread_mutex_unlock(&locks.mutex))
PAIRS_OF(pthread_spin, pthread_spin_lock(&locks.pthread_spin), pthread_spin_unlock(&locks.pthread_spin))
PAIRS_OF(nsync, nsync_lock(locks.nsync), nsync_unlock(locks.nsync))

#define CALLS_OF(name, lock, unlock)                                                                         \
	static NOINLINE void name##_lock(void)                                                               \
	{                                                                                                    \
		lock;                                                                                        \
	}                                                                                                    \
	static NOINLINE void name##_unlock(void)                                                             \
	{                                                                                                    \
		unlock;                                                                                      \
	}

CALLS_OF(call_page, cpuslab_pagelock_lock(&locks.page), cpuslab_pagelock_unlock(&locks.page))
CALLS_OF(call_spin, cpuslab_spin_lock(&locks.spin), cpuslab_spin_unlock(&locks.spin))
CALLS_OF(call_mcs, cpuslab_mcs_lock(&locks.mcs, &node), cpuslab_mcs_unlock(&locks.mcs, &node))
CALLS_OF(call_mutex, pthread_mutex_lock(&locks.mutex), pthread_mutex_unlock(&locks.mutex))
CALLS_OF(call_pthread_spin, pthread_spin_lock(&locks.pthread_spin), pthread_spin_unlock(&locks.pthread_spin))
CALLS_OF(call_nsync, nsync_lock(locks.nsync), nsync_unlock(locks.nsync))
CALLS_OF(call_parking_lot, parking_lot_lock(), parking_lot_unlock())

/* Finds the peers that are libraries of their own; says in a line which are not here. */
static void find_peers(void)
{
	char path[PATH_MAX + 64], self[PATH_MAX];
	void *library = dlopen("libnsync.so.1", RTLD_NOW | RTLD_LOCAL);

	if (library) {
		*(void **)&nsync_lock = dlsym(library, "nsync_mu_lock");
		*(void **)&nsync_unlock = dlsym(library, "nsync_mu_unlock");
	}
	if (!nsync_lock || !nsync_unlock) {
		nsync_lock = NULL;
		printf("skipped: nsync (Debian package libnsync1)\n");
	}
	ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
	self[length < 0 ? 0 : length] = 0;
	const char *given = getenv("CPUSLAB_PARKING_LOT");
	snprintf(path, sizeof path, "%s/libcpuslab_peer_parking_lot.so", dirname(self));
	library = dlopen(given ? given : path, RTLD_NOW | RTLD_LOCAL);
	if (library) {
		*(void **)&parking_lot_pairs = dlsym(library, "cpuslab_peer_pairs");
		*(void **)&parking_lot_lock = dlsym(library, "cpuslab_peer_lock");
		*(void **)&parking_lot_unlock = dlsym(library, "cpuslab_peer_unlock");
	}
	if (!parking_lot_pairs || !parking_lot_lock || !parking_lot_unlock) {
		parking_lot_pairs = NULL;
		printf("skipped: parking_lot (cargo build --release in bench/peers/parking_lot; its library "
		       "beside\n"
		       "         this program, or named by CPUSLAB_PARKING_LOT)\n");
	}
	pthread_spin_init(&locks.pthread_spin, PTHREAD_PROCESS_PRIVATE);
}

/* ---- windows
 * ------------------------------------------------------------------------------------------------ */

static bool real_time;

static unsigned cpus(cpu_set_t *set)
{
	CPU_ZERO(set);
	sched_getaffinity(0, sizeof *set, set);
	return (unsigned)CPU_COUNT(set);
}

/* The place-th CPU that this process may use. */
static void pin(unsigned place)
{
	cpu_set_t allowed, one;
	unsigned count = cpus(&allowed);

	CPU_ZERO(&one);
	place %= count;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &allowed) && place-- == 0) {
			CPU_SET(cpu, &one);
			break;
		}
	pthread_setaffinity_np(pthread_self(), sizeof one, &one);
}

static void prefer_me(void)
{
	struct sched_param parameter = {.sched_priority = 10};

	if (pthread_setschedparam(pthread_self(), SCHED_FIFO, &parameter) == 0)
		__atomic_store_n(&real_time, true, __ATOMIC_RELAXED);
}

static void prefer_nobody(void)
{
	struct sched_param parameter = {0};

	pthread_setschedparam(pthread_self(), SCHED_OTHER, &parameter);
}

struct window {
	long switches;
	unsigned long long stolen;
};

static unsigned long long stolen_time(void)
{
	unsigned long long field[8] = {0};
	FILE *file = fopen("/proc/stat", "re");

	if (file) {
		if (fscanf(file, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &field[0], &field[1],
			   &field[2], &field[3], &field[4], &field[5], &field[6], &field[7]) != 8)
			field[7] = 0;
		fclose(file);
	}
	return field[7];
}

static struct window open_window(void)
{
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	return (struct window){usage.ru_nivcsw, stolen_time()};
}

static bool lost_the_cpu(struct window window)
{
	struct window now = open_window();

	return now.switches != window.switches || now.stolen != window.stolen;
}

/* ---- alone
 * -------------------------------------------------------------------------------------------------- */

struct alone {
	const char *name;
	void (*pairs)(uint64_t);
	struct samples ticks;
};

static void *nothing(void *argument)
{
	return argument;
}

/* One sample that nothing disturbed; returns how many were disturbed. */
static unsigned measure_pairs(struct alone *kind)
{
	for (unsigned attempt = 0; attempt < ATTEMPTS; attempt++) {
		kind->pairs(PAIRS / 10);
		struct window opened = open_window();
		uint64_t start = ticks();
		kind->pairs(PAIRS);
		uint64_t end = ticks();
		if (!lost_the_cpu(opened)) {
			add_sample(&kind->ticks, (double)(end - start) / PAIRS);
			return attempt;
		}
	}
	return ATTEMPTS;
}

static void measure_alone(unsigned windows)
{
	enum {
		EMPTY,
		BARE,
		PAGE,
		TWO_STEP,
		BIT,
		SPIN,
		DEMOTING,
		EXCHANGE,
		MCS,
		MUTEX,
		PTHREAD_SPIN,
		PARKING_LOT,
		NSYNC,
		KINDS
	};
	struct alone kinds[KINDS] = {
		[EMPTY] = {.name = "empty loop", .pairs = empty_pairs},
		[BARE] = {.name = "bare cmpxchg + lock and", .pairs = bare_pairs},
		[PAGE] = {.name = "pagelock", .pairs = page_pairs},
		[TWO_STEP] = {.name = "pagelock, two-step unlock", .pairs = two_step_pairs},
		[BIT] = {.name = "lock bts + lock and", .pairs = bit_pairs},
		[SPIN] = {.name = "spinlock", .pairs = spin_pairs},
		[DEMOTING] = {.name = "spinlock, demoting", .pairs = demoting_pairs},
		[EXCHANGE] = {.name = "spinlock with exchange", .pairs = exchange_pairs},
		[MCS] = {.name = "mcs", .pairs = mcs_pairs},
		[MUTEX] = {.name = "pthread_mutex", .pairs = mutex_pairs},
		[PTHREAD_SPIN] = {.name = "pthread_spin", .pairs = pthread_spin_pairs},
		[PARKING_LOT] = {.name = "parking_lot RawMutex", .pairs = parking_lot_pairs},
		[NSYNC] = {.name = "nsync_mu", .pairs = nsync_lock ? nsync_pairs : NULL},
	};
	pthread_t thread;
	unsigned thrown_away = 0;
	cpu_set_t before;

	/* libc takes shortcuts in a process that never had a second thread. */
	if (pthread_create(&thread, NULL, nothing, NULL) == 0)
		pthread_join(thread, NULL);
	cpus(&before);
	pin(0);
	prefer_me();
	for (unsigned window = 0; window < windows; window++)
		for (unsigned turn = 0; turn < KINDS; turn++) {
			struct alone *kind = &kinds[(turn + window) % KINDS];

			if (kind->pairs)
				thrown_away += measure_pairs(kind);
		}
	prefer_nobody();
	pthread_setaffinity_np(pthread_self(), sizeof before, &before);

	double median[KINDS];
	for (unsigned i = 0; i < KINDS; i++)
		median[i] = quantile(&kinds[i].ticks, 0.5);
	printf("\nalone: lock + unlock, " TICKS_UNIT ", %u windows of %d pairs%s, %u thrown away\n", windows,
	       PAIRS, real_time ? ", real-time priority" : "", thrown_away);
	printf("  %-28s %8s %8s %10s\n", "", "median", "minimum", "to bare");
	for (unsigned i = 0; i < KINDS; i++)
		if (kinds[i].ticks.count > 0)
			printf("  %-28s %8.2f %8.2f %9.2fx\n", kinds[i].name, median[i],
			       quantile(&kinds[i].ticks, 0), median[i] / median[BARE]);
	printf("  pagelock to the bare pair %.2fx (aim: at most 1.05)\n"
	       "  two-step unlock to pagelock %.2fx (aim: at least 1.25)\n"
	       "  pthread_mutex to pagelock %.2fx (aim: at least 1.3)\n",
	       median[PAGE] / median[BARE], median[TWO_STEP] / median[PAGE], median[MUTEX] / median[PAGE]);
	if (kinds[PARKING_LOT].pairs)
		printf("  parking_lot to pagelock %.2fx (aim: at least 1)\n",
		       median[PARKING_LOT] / median[PAGE]);
	fflush(stdout);
}

/* ---- migratory
 * ---------------------------------------------------------------------------------------------- */

enum { TURNS = 2000, REST = 500 };

static struct {
	uint32_t turn OWN_LINES;
	struct cpuslab_spinlock *lock OWN_LINES;
	unsigned length;
} relay;

struct runner {
	unsigned place;
	bool lost;
	double remote, local,
		whole; /* ticks: the first acquisition of a turn; a later one; a pair, all in all */
};

static void *run_relay(void *argument)
{
	struct runner *me = argument;
	uint64_t remote = 0, local = 0, whole = 0;

	pin(me->place);
	prefer_me();
	struct window opened = open_window();
	for (unsigned turn = 0; turn < TURNS; turn++) {
		while (__atomic_load_n(&relay.turn, __ATOMIC_ACQUIRE) % 2 != me->place)
			;
		uint64_t start = ticks();
		for (unsigned i = 0; i < relay.length; i++) {
			uint64_t before = ticks();
			cpuslab_spin_lock(relay.lock);
			uint64_t after = ticks();
			cpuslab_spin_unlock(relay.lock);
			*(i == 0 ? &remote : &local) += after - before;
		}
		whole += ticks() - start;
		/* Long enough for the line to have left, if it was given away. */
		for (uint64_t until = ticks() + REST; ticks() < until;)
			;
		__atomic_fetch_add(&relay.turn, 1, __ATOMIC_RELEASE);
	}
	me->lost = lost_the_cpu(opened);
	prefer_nobody();
	me->remote = (double)remote / TURNS;
	me->local = relay.length > 1 ? (double)local / (TURNS * (relay.length - 1.0)) : 0;
	me->whole = (double)whole / (TURNS * (double)relay.length);
	return NULL;
}

static bool has_demote(void)
{
#if defined(__x86_64__)
	unsigned a, b, c = 0, d;

	return __get_cpuid_count(7, 0, &a, &b, &c, &d) && ((c >> 25) & 1);
#else
	return false;
#endif
}

static void measure_migratory(unsigned windows)
{
	static const unsigned lengths[] = {1, 2, 3, 4, 8, 16, 64};
	cpu_set_t set;

	printf("\nmigratory: one lock, two CPUs in turn, k acquisitions a turn, " TICKS_UNIT
	       " (with the clock's own)\n");
	if (cpus(&set) < 2) {
		printf("  skipped: one CPU\n");
		return;
	}
	if (!has_demote())
		printf("  this processor has no CLDEMOTE: the demoting unlock is a call and a no-op, and "
		       "cannot win here\n");
	printf("  %4s %8s %10s %8s   %8s %10s %8s   %10s\n", "k", "remote:", "demoting", "",
	       "local:", "demoting", "", "whole turn");
	for (unsigned l = 0; l < LENGTH(lengths); l++) {
		struct samples remote[2] = {0}, local[2] = {0}, whole[2] = {0};

		for (unsigned sample = 0; sample < 2 * windows; sample++)
			for (unsigned attempt = 0; attempt < ATTEMPTS; attempt++) {
				struct runner runners[2] = {{.place = 0}, {.place = 1}};
				unsigned demoting = sample % 2;
				pthread_t threads[2];

				relay.turn = 0;
				relay.lock = demoting ? &locks.demoting : &locks.spin;
				relay.length = lengths[l];
				for (int i = 0; i < 2; i++)
					pthread_create(&threads[i], NULL, run_relay, &runners[i]);
				for (int i = 0; i < 2; i++)
					pthread_join(threads[i], NULL);
				if (runners[0].lost || runners[1].lost)
					continue;
				add_sample(&remote[demoting], (runners[0].remote + runners[1].remote) / 2);
				add_sample(&local[demoting], (runners[0].local + runners[1].local) / 2);
				add_sample(&whole[demoting], (runners[0].whole + runners[1].whole) / 2);
				break;
			}
		double r[2], o[2], w[2];
		for (int i = 0; i < 2; i++) {
			r[i] = quantile(&remote[i], 0.5);
			o[i] = quantile(&local[i], 0.5);
			w[i] = quantile(&whole[i], 0.5);
		}
		printf("  %4u %8.1f %10.1f %7.2fx   %8.1f %10.1f %7.2fx   %9.2fx\n", lengths[l], r[0], r[1],
		       r[0] > 0 ? r[1] / r[0] : 0, o[0], o[1], o[0] > 0 ? o[1] / o[0] : 0,
		       w[0] > 0 ? w[1] / w[0] : 0);
		fflush(stdout);
	}
}

/* ---- contended
 * ---------------------------------------------------------------------------------------------- */

enum class_of { SLEEPING, SPINNING, QUEUED, CLASSES };

static const char *const class_names[CLASSES] = {"sleeping", "spinning", "queued"};

struct contended {
	const char *name;
	enum class_of class;
	void (*lock)(void), (*unlock)(void);
	struct samples rate, longest;
};

struct contender {
	uint64_t turns, longest;
	unsigned place;
	bool lost;
} OWN_LINES;

static struct {
	uint64_t end OWN_LINES; /* of the window, in ticks; 0 until the first contender runs */
	uint64_t value OWN_LINES;
	pthread_barrier_t start OWN_LINES;
	const struct contended *kind;
	unsigned inside, outside;
	uint64_t length;
	bool pinned;
} contest;

static inline void work(unsigned amount)
{
	for (; amount > 0; amount--)
		__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

static void *contend(void *argument)
{
	struct contender *me = argument;

	/* The contenders end the window themselves: with real-time priority they leave no CPU to a
	 * timekeeper. */
	if (contest.pinned) {
		pin(me->place);
		prefer_me();
	} else {
		/* Not real-time priority, under which threads that outnumber the CPUs would not take turns.
		 */
		setpriority(PRIO_PROCESS, (id_t)gettid(), -20);
	}
	pthread_barrier_wait(&contest.start);
	struct window opened = open_window();
	uint64_t end = 0, mine = ticks() + contest.length;
	if (__atomic_compare_exchange_n(&contest.end, &end, mine, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		end = mine;
	for (uint64_t before; (before = ticks()) < end;) {
		contest.kind->lock();
		uint64_t waited = ticks() - before;
		contest.value++;
		work(contest.inside);
		contest.kind->unlock();
		if (waited > me->longest)
			me->longest = waited;
		me->turns++;
		work(contest.outside);
	}
	me->lost = contest.pinned && lost_the_cpu(opened);
	if (contest.pinned)
		prefer_nobody();
	return NULL;
}

/* One window; false when a thread lost its CPU. */
static bool run_contest(struct contended *kind, unsigned threads, unsigned milliseconds,
			double ticks_a_second)
{
	struct contender *contenders = aligned_alloc(128, threads * sizeof *contenders);
	pthread_t *thread = calloc(threads, sizeof *thread);
	pthread_attr_t attributes;
	uint64_t turns = 0, longest = 0;
	bool lost = false;

	if (!contenders || !thread)
		exit(1);
	memset(contenders, 0, threads * sizeof *contenders);
	contest.kind = kind;
	pthread_barrier_init(&contest.start, NULL, threads + 1);
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, 128 * 1024);
	for (unsigned i = 0; i < threads; i++) {
		contenders[i].place = i;
		if (pthread_create(&thread[i], &attributes, contend, &contenders[i]) != 0) {
			fprintf(stderr, "locks: no more than %u threads here\n", i);
			exit(1);
		}
	}
	contest.end = 0;
	contest.length = (uint64_t)(ticks_a_second * milliseconds / 1000);
	pthread_barrier_wait(&contest.start);
	for (unsigned i = 0; i < threads; i++)
		pthread_join(thread[i], NULL);
	for (unsigned i = 0; i < threads; i++) {
		turns += contenders[i].turns;
		if (contenders[i].longest > longest)
			longest = contenders[i].longest;
		lost |= contenders[i].lost;
	}
	pthread_attr_destroy(&attributes);
	pthread_barrier_destroy(&contest.start);
	free(contenders);
	free(thread);
	if (lost)
		return false;
	add_sample(&kind->rate, (double)turns * 1000 / milliseconds);
	add_sample(&kind->longest, (double)longest);
	return true;
}

struct load {
	const char *name;
	unsigned inside, outside; /* turns of an empty loop */
};

static void measure_load(const struct load *load, unsigned threads, unsigned windows)
{
	struct contended kinds[] = {
		{.name = "pagelock", .class = SLEEPING, .lock = call_page_lock, .unlock = call_page_unlock},
		{.name = "pthread_mutex",
		 .class = SLEEPING,
		 .lock = call_mutex_lock,
		 .unlock = call_mutex_unlock},
		{.name = "parking_lot",
		 .class = SLEEPING,
		 .lock = parking_lot_pairs ? call_parking_lot_lock : NULL,
		 .unlock = call_parking_lot_unlock},
		{.name = "nsync_mu",
		 .class = SLEEPING,
		 .lock = nsync_lock ? call_nsync_lock : NULL,
		 .unlock = call_nsync_unlock},
		{.name = "spinlock", .class = SPINNING, .lock = call_spin_lock, .unlock = call_spin_unlock},
		{.name = "pthread_spin",
		 .class = SPINNING,
		 .lock = call_pthread_spin_lock,
		 .unlock = call_pthread_spin_unlock},
		{.name = "mcs", .class = QUEUED, .lock = call_mcs_lock, .unlock = call_mcs_unlock},
	};
	double best[CLASSES] = {0}, rate = ticks_per_second(0.05);
	cpu_set_t set;
	unsigned available = cpus(&set), milliseconds = threads <= available ? 10 : 60;

	/* Two threads fall into one rhythm or another, and stay in it for a window: many windows are needed.
	 */
	if (threads <= available)
		windows *= 7;

	contest.inside = load->inside;
	contest.outside = load->outside;
	/* The measuring thread sleeps meanwhile: the CPUs are the contenders'. */
	contest.pinned = threads <= available;
	for (unsigned window = 0; window < windows; window++)
		for (unsigned turn = 0; turn < LENGTH(kinds); turn++) {
			struct contended *kind = &kinds[(turn + window) % LENGTH(kinds)];

			for (unsigned attempt = 0; kind->lock && attempt < ATTEMPTS; attempt++)
				if (run_contest(kind, threads, milliseconds, rate))
					break;
		}
	printf("\ncontended: %u threads on %u CPUs, %s; %u windows of %u ms%s\n", threads, available,
	       load->name, windows, milliseconds,
	       !contest.pinned ? ""
	       : real_time     ? ", pinned, real-time priority"
			       : ", pinned");
	printf("  %-15s %-9s %12s %10s %22s\n", "", "class", "turns/s", "to best", "longest wait, µs");
	for (unsigned i = 0; i < LENGTH(kinds); i++) {
		double median = quantile(&kinds[i].rate, 0.5);

		if (median > best[kinds[i].class])
			best[kinds[i].class] = median;
	}
	for (unsigned i = 0; i < LENGTH(kinds); i++) {
		if (kinds[i].rate.count == 0)
			continue;
		double median = quantile(&kinds[i].rate, 0.5);
		printf("  %-15s %-9s %12.0f %9.2fx %11.0f, at most %.0f\n", kinds[i].name,
		       class_names[kinds[i].class], median, median / best[kinds[i].class],
		       1e6 * quantile(&kinds[i].longest, 0.5) / rate,
		       1e6 * quantile(&kinds[i].longest, 1) / rate);
	}
	fflush(stdout);
}

static void measure_contended(unsigned windows, unsigned threads_max)
{
	static const struct load loads[] = {
		{"nothing inside, nothing outside", 0, 0},
		{"short inside, short outside", 50, 50},
		{"short inside, long outside", 50, 1000},
		{"long inside, short outside", 1000, 50},
	};
	static const unsigned thread_counts[] = {2, 8, 64, 512};

	for (unsigned n = 0; n < LENGTH(thread_counts); n++)
		for (unsigned l = 0; l < LENGTH(loads); l++)
			if (thread_counts[n] <= threads_max)
				measure_load(&loads[l], thread_counts[n], windows);
}

/* ---- entry
 * --------------------------------------------------------------------------------------------------- */

int bench_locks(int argc, char **argv)
{
	bool quick = false, any = false, alone = false, migratory = false, contended = false;

	for (int i = 1; i < argc; i++) {
		bool *part = !strcmp(argv[i], "alone")       ? &alone
			     : !strcmp(argv[i], "migratory") ? &migratory
			     : !strcmp(argv[i], "contended") ? &contended
							     : NULL;

		if (!strcmp(argv[i], "quick")) {
			quick = true;
		} else if (part) {
			*part = any = true;
		} else {
			fprintf(stderr, "locks: takes quick, alone, migratory, contended; not '%s'\n",
				argv[i]);
			return 2;
		}
	}
	find_peers();
	if (!any || alone)
		measure_alone(quick ? 21 : 101);
	if (!any || migratory)
		measure_migratory(quick ? 5 : 21);
	if (!any || contended)
		measure_contended(quick ? 3 : 9, quick ? 64 : 512);
	return 0;
}
