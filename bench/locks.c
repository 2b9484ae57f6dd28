/* SPDX-License-Identifier: MIT */
/*
 * locks, pagelock: the library's locks beside the bare instructions and other libraries' locks, all in one
 * process.
 *
 *   alone       uncontended lock + unlock, in a process with threads
 *   migratory   one lock that goes to and fro between two CPUs after runs of k acquisitions: what a remote
 *               and a local acquisition cost with and without the demoting unlock
 *   contended   2, 8, 64 and 512 threads, with and without work inside and outside: acquisitions a second,
 *               once each thread has had the lock, and the longest that any thread waited
 *   share       of unlocking in a profile of the allocator (unlock_share.c)
 *   fairness    the page lock under contention, by the number of races that a waiter may lose before it is
 *               handed the lock
 *
 * Windows are short and interleaved: each lock in turn, then again.  Threads that do not outnumber the CPUs
 * are pinned and, if the system allows it, have real-time priority; more threads than CPUs, and their
 * session, get the highest priority among the others.  A window in which a thread lost its CPU (involuntary
 * switches of pinned ones, or time stolen by the hypervisor) is discarded and measured again.
 */
#include "bench.h"

#include "launch.h"
#include "lock_kinds.h"
#include "machine.h"
#include "pin.h"
#include "statistics.h"
#include "ticks.h"
#include "unlock_share.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { PAIRS = 20000, TURNS = 2000, REST = 500, ATTEMPTS = 20, THREADS_MAX = 512, METRICS = 3 };
/*
 * The line's round trip is the least of several games of so many trips; a game that takes milliseconds is
 * abandoned.
 */
enum { GAMES = 4, TRIPS = 125, LONGEST_GAME = 20 };
/* Rounds of a contest: with at most a thread for each CPU; with more; and if the CPUs moved meanwhile. */
enum { ROUNDS_PINNED = 63, ROUNDS_OF_A_CROWD = 9, ROUNDS_OF_A_CROWD_MOVED = 14 };
enum { ROUNDS_MOST = 1000, ROUNDS_OF_A_PLACE = 3, ROUNDS_REPEATED = 3 };
/*
 * If threads outnumber the CPUs, in milliseconds: roughly the time slice of each; the window; the longest
 * warm-up, which is otherwise a slice for each.
 */
enum { SLICE = 4, CROWD_WINDOW = 25 * SLICE, CROWD_WARM_UP = 250 };
#define PLACES_DIFFER 1.5

enum part {
	PART_WHICH,     /* which kinds exist, as bits */
	PART_ALONE,     /* ticks per pair */
	PART_MIGRATORY, /* ticks of: the first acquisition of a turn; a later one; a pair overall */
	PART_CONTENDED, /* turns a second; the longest wait in microseconds; ticks of a line's round trip */
};

/* One window. */
struct request {
	enum part part;
	enum lock_kind_number kind;
	unsigned length;                   /* migratory: acquisitions a turn */
	unsigned threads, inside, outside; /* contended; work in turns of an empty loop */
	unsigned warm_up, milliseconds;    /* contended: the longest warm-up, and the window */
	unsigned races;                    /* fairness: races that a waiter may lose */
};

struct reply {
	bool undisturbed, real_time;
	unsigned kinds;
	double value[METRICS];
};

/* ======== in the worker ======== */

static bool real_time;
static double tick_rate; /* per second */

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

/*
 * If the kernel shares the CPUs among sessions first (autogroups), a thread's niceness counts only within its
 * session: so the worker becomes a session of its own, and that gets the niceness too.
 */
static void prefer_my_session(void)
{
	static const char most[] = "-20";
	if (setsid() < 0)
		return;
	int fd = open("/proc/self/autogroup", O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	/* Refused without privilege: then the machine's other load is in the figures. */
	ssize_t written = write(fd, most, sizeof(most) - 1);
	(void)written;
	close(fd);
}

struct window {
	long switches;
	unsigned long long stolen;
};

static struct window open_window(void)
{
	struct rusage usage;
	getrusage(RUSAGE_THREAD, &usage);
	return (struct window){usage.ru_nivcsw, machine_time().stolen};
}

static bool lost_the_cpu(struct window window)
{
	struct window now = open_window();
	return now.switches != window.switches || now.stolen != window.stolen;
}

/* ---- alone ---- */

static void measure_alone(const struct request *request, struct reply *reply)
{
	void (*pairs)(uint64_t) = lock_kinds[request->kind].pairs;
	pin_to_place(0);
	prefer_me();
	pairs(PAIRS / 10);
	struct window opened = open_window();
	uint64_t start = ticks();
	pairs(PAIRS);
	reply->value[0] = (double)(ticks() - start) / PAIRS;
	reply->undisturbed = !lost_the_cpu(opened);
	prefer_nobody();
	/*
	 * Threads start where their creator may run: on a CPU that another thread holds with real-time
	 * priority they would never get to pin themselves elsewhere.
	 */
	pin_to_none();
}

/* ---- migratory ---- */

static struct {
	uint32_t turn OWN_LINES;
	struct cpuslab_spinlock *lock OWN_LINES;
	unsigned length;
} relay;

struct runner {
	pthread_t thread;
	unsigned place;
	bool lost;
	double value[METRICS];
};

static void *run_relay(void *argument)
{
	struct runner *me = argument;
	uint64_t remote = 0, local = 0, whole = 0;
	pin_to_place(me->place);
	prefer_me();
	struct window opened = open_window();
	for (unsigned turn = 0; turn < TURNS; turn++) {
		while (__atomic_load_n(&relay.turn, __ATOMIC_ACQUIRE) % 2 != me->place)
			;
		uint64_t start = ticks();
		for (unsigned i = 0; i < relay.length; i++) {
			uint64_t before = ticks_in_order();
			cpuslab_spin_lock(relay.lock);
			uint64_t after = ticks_in_order();
			cpuslab_spin_unlock(relay.lock);
			*(i == 0 ? &remote : &local) += after - before;
		}
		whole += ticks() - start;
		/* Long enough for the line to have left, if it was demoted. */
		for (uint64_t until = ticks() + REST; ticks() < until;)
			;
		__atomic_fetch_add(&relay.turn, 1, __ATOMIC_RELEASE);
	}
	me->lost = lost_the_cpu(opened);
	prefer_nobody();
	me->value[0] = (double)remote / TURNS;
	me->value[1] = relay.length > 1 ? (double)local / (TURNS * (relay.length - 1.0)) : 0;
	me->value[2] = (double)whole / (TURNS * (double)relay.length);
	return NULL;
}

static void measure_migratory(const struct request *request, struct reply *reply)
{
	struct runner runners[2] = {{.place = 0}, {.place = 1}};
	relay.turn = 0;
	relay.lock = lock_kinds_spin(request->kind == KIND_DEMOTING);
	relay.length = request->length;
	for (int i = 0; i < 2; i++)
		if (pthread_create(&runners[i].thread, NULL, run_relay, &runners[i]) != 0)
			abort();
	for (int i = 0; i < 2; i++)
		pthread_join(runners[i].thread, NULL);
	for (int i = 0; i < METRICS; i++)
		reply->value[i] = (runners[0].value[i] + runners[1].value[i]) / 2;
	reply->undisturbed = !runners[0].lost && !runners[1].lost;
}

/* ---- where the CPUs are ---- */

/*
 * A cache line's round trip between the first CPU and the second.  The CPUs of a virtual machine move about
 * in their host, and are then close together or far apart: this tells which figures belong to which place.
 */
static struct {
	uint32_t ball OWN_LINES;
	uint64_t least OWN_LINES; /* ticks of a game; the first player's */
	uint32_t given_up;
} match;

struct player {
	pthread_t thread;
	unsigned place;
};

/* Returns false if the other player did not come: something else has its CPU, and perhaps waits for ours. */
static bool return_ball(unsigned place, uint64_t deadline)
{
	while (__atomic_load_n(&match.ball, __ATOMIC_ACQUIRE) % 2 != place)
		if (__atomic_load_n(&match.given_up, __ATOMIC_RELAXED) || ticks() > deadline)
			return false;
	__atomic_fetch_add(&match.ball, 1, __ATOMIC_RELEASE);
	return true;
}

static void *play_ball(void *argument)
{
	struct player *me = argument;
	uint64_t least = UINT64_MAX;
	pin_to_place(me->place);
	prefer_me();
	for (unsigned game = 0; game < GAMES; game++) {
		uint64_t start = ticks(), deadline = start + (uint64_t)(tick_rate * LONGEST_GAME / 1000);
		for (unsigned trip = 0; trip < TRIPS; trip++)
			if (!return_ball(me->place, deadline)) {
				__atomic_store_n(&match.given_up, 1, __ATOMIC_RELAXED);
				return NULL;
			}
		uint64_t length = ticks() - start;
		least = length < least ? length : least;
	}
	if (me->place == 0)
		match.least = least;
	return NULL;
}

/* In ticks; 0 if the match was abandoned. */
static double line_to_and_fro(void)
{
	struct player players[2] = {{.place = 0}, {.place = 1}};
	match.ball = match.given_up = 0;
	for (int i = 0; i < 2; i++)
		if (pthread_create(&players[i].thread, NULL, play_ball, &players[i]) != 0)
			abort();
	for (int i = 0; i < 2; i++)
		pthread_join(players[i].thread, NULL);
	return match.given_up ? 0 : (double)match.least / TRIPS;
}

static bool same_place(double line, double other)
{
	return fmax(line, other) < PLACES_DIFFER * fmin(line, other);
}

/* ---- contended ---- */

static struct contender {
	pthread_t thread;
	uint64_t turns, longest;
	unsigned place;
	bool lost;
} OWN_LINES contenders[THREADS_MAX];

static struct {
	uint64_t begun OWN_LINES;     /* when the first contender ran, in ticks; 0 until then */
	uint64_t opened;              /* when the window opened, in ticks */
	uint32_t newcomers OWN_LINES; /* contenders that have not had the lock yet */
	pthread_barrier_t barrier OWN_LINES;
	const struct lock_kind *kind;
	unsigned inside, outside;
	uint64_t warm_up, length; /* in ticks */
	bool pinned;
} contest;

static inline void work(unsigned amount)
{
	for (; amount > 0; amount--)
		__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

/* Takes one turn; returns when it got the lock. */
static inline uint64_t take_turn(uint64_t *guarded)
{
	contest.kind->lock();
	uint64_t taken = ticks();
	++*guarded;
	work(contest.inside);
	contest.kind->unlock();
	return taken;
}

/*
 * Takes turns until the window opens, which is when every contender has had the lock, or has had time enough
 * for it; returns its longest wait.  Before that, threads that outnumber the CPUs behave as never again: most
 * have not reached the lock yet, and those that have are hardly disturbed.
 */
static uint64_t warm_up(uint64_t *guarded)
{
	uint64_t now = ticks(), none = 0, longest = 0;
	__atomic_compare_exchange_n(&contest.begun, &none, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
	uint64_t latest = __atomic_load_n(&contest.begun, __ATOMIC_RELAXED) + contest.warm_up;
	for (bool newcomer = true; __atomic_load_n(&contest.opened, __ATOMIC_RELAXED) == 0;
	     newcomer = false) {
		now = ticks();
		if (now >= latest || __atomic_load_n(&contest.newcomers, __ATOMIC_RELAXED) == 0) {
			none = 0;
			__atomic_compare_exchange_n(&contest.opened, &none, now, false, __ATOMIC_RELAXED,
						    __ATOMIC_RELAXED);
			break;
		}
		uint64_t waited = take_turn(guarded) - now;
		longest = waited > longest ? waited : longest;
		if (newcomer)
			__atomic_fetch_sub(&contest.newcomers, 1, __ATOMIC_RELAXED);
		work(contest.outside);
	}
	return longest;
}

static void *contend(void *argument)
{
	struct contender *me = argument;
	/*
	 * The contenders end the window themselves: with real-time priority they leave no CPU for a
	 * timekeeper.
	 */
	if (contest.pinned) {
		pin_to_place(me->place);
		prefer_me();
	} else {
		/*
		 * Not real-time priority, under which threads that outnumber the CPUs would not take turns.
		 */
		setpriority(PRIO_PROCESS, (id_t)gettid(), -20);
	}
	pthread_barrier_wait(&contest.barrier);
	struct window opened = open_window();
	/* In the window nothing is stored but what the lock guards: see lock_kinds.c. */
	uint64_t *guarded = lock_kinds_guarded(), turns = 0, longest = warm_up(guarded);
	uint64_t end = __atomic_load_n(&contest.opened, __ATOMIC_RELAXED) + contest.length;
	for (uint64_t before; (before = ticks()) < end;) {
		uint64_t taken = take_turn(guarded), waited = taken - before;
		longest = waited > longest ? waited : longest;
		turns += taken < end;
		work(contest.outside);
	}
	me->turns = turns;
	me->longest = longest;
	if (contest.pinned) {
		me->lost = lost_the_cpu(opened);
		prefer_nobody();
	}
	return NULL;
}

static void measure_contest(const struct request *request, struct reply *reply)
{
	pthread_attr_t attributes;
	uint64_t turns = 0, longest = 0;
	bool lost = false;
	contest.kind = &lock_kinds[request->kind];
	contest.inside = request->inside;
	contest.outside = request->outside;
	contest.begun = 0;
	contest.opened = 0;
	contest.newcomers = request->threads;
	contest.warm_up = (uint64_t)(tick_rate * request->warm_up / 1000);
	contest.length = (uint64_t)(tick_rate * request->milliseconds / 1000);
	/* The measuring thread sleeps meanwhile: the CPUs belong to the contenders. */
	contest.pinned = request->threads <= machine_cpus();
	unsigned before = cpuslab_pagelock_set_unfairness(request->races);
	unsigned long long stolen = machine_time().stolen;
	pthread_barrier_init(&contest.barrier, NULL, request->threads);
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, 128 << 10);
	for (unsigned i = 0; i < request->threads; i++) {
		contenders[i] = (struct contender){.place = i};
		if (pthread_create(&contenders[i].thread, &attributes, contend, &contenders[i]) != 0)
			abort();
	}
	for (unsigned i = 0; i < request->threads; i++) {
		pthread_join(contenders[i].thread, NULL);
		turns += contenders[i].turns;
		longest = contenders[i].longest > longest ? contenders[i].longest : longest;
		lost |= contenders[i].lost;
	}
	reply->undisturbed = !lost && machine_time().stolen == stolen;
	pthread_attr_destroy(&attributes);
	pthread_barrier_destroy(&contest.barrier);
	cpuslab_pagelock_set_unfairness(before);
	/*
	 * At least one, so that ratios exist even beside a lock that nobody got while its owner was
	 * preempted.
	 */
	reply->value[0] = fmax((double)turns, 1) * 1000 / request->milliseconds;
	reply->value[1] = 1e6 * (double)longest / tick_rate;
}

/* A window in which the CPUs moved belongs to no place, and counts as disturbed. */
static void measure_contended(const struct request *request, struct reply *reply)
{
	if (machine_cpus() < 2) {
		measure_contest(request, reply);
		return;
	}
	double before = line_to_and_fro();
	measure_contest(request, reply);
	double after = line_to_and_fro();
	reply->value[2] = fmin(before, after);
	reply->undisturbed &= before > 0 && after > 0 && same_place(before, after);
}

static void *nothing(void *argument)
{
	return argument;
}

int worker_locks(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	struct request request;
	pthread_t thread;
	prefer_my_session();
	lock_kinds_find();
	pin_begin();
	tick_rate = ticks_per_second(0.05);
	/* libc takes shortcuts in a process that never had a second thread. */
	if (pthread_create(&thread, NULL, nothing, NULL) == 0)
		pthread_join(thread, NULL);
	while (session_receive(&request, sizeof(request))) {
		struct reply reply = {0};
		switch (request.part) {
		case PART_WHICH:
			for (unsigned i = 0; i < LOCK_KINDS; i++)
				reply.kinds |= (lock_kinds[i].pairs != NULL) << i;
			break;
		case PART_ALONE:
			measure_alone(&request, &reply);
			break;
		case PART_MIGRATORY:
			measure_migratory(&request, &reply);
			break;
		case PART_CONTENDED:
			measure_contended(&request, &reply);
			break;
		}
		reply.real_time = real_time;
		if (!session_reply(&reply, sizeof(reply)))
			return 1;
	}
	return 0;
}

/* ======== in the command ======== */

struct metric {
	const char *name, *unit;
	enum better better;
	const char *column; /* one sample a round, in a column of this name: not the locks' */
};

/* One row of a table: what is asked of each of these kinds, and how often. */
struct row {
	const char *group, *test, *parameter;
	struct metric metrics[METRICS]; /* ended by a NULL name */
	const enum lock_kind_number *kinds;
	unsigned kind_count, rounds, rounds_if_moved; /* the last: if the CPUs had two places; 0: as many */
	struct request request;
};

struct lock_bench {
	struct bench *bench;
	struct session session;
	unsigned kinds;         /* bits of those that exist */
	bool pinned, real_time; /* whether a window should have had real-time priority; had it */
};

static bool open_locks(struct lock_bench *l, struct bench *bench)
{
	struct request request = {.part = PART_WHICH};
	struct reply reply;
	*l = (struct lock_bench){.bench = bench};
	if (!session_open(&l->session, NULL, "locks") ||
	    !session_ask(&l->session, &request, sizeof(request), &reply, sizeof(reply))) {
		session_close(&l->session);
		results_note(&bench->results, "locks", "left out: their worker did not start");
		return false;
	}
	l->kinds = reply.kinds;
	return true;
}

static bool close_locks(struct lock_bench *l)
{
	bool well = !l->session.broken;
	session_close(&l->session);
	if (!well)
		results_note(&l->bench->results, "locks", "cut short: their worker ended");
	else if (l->pinned && !l->real_time)
		results_note(&l->bench->results, "locks", "measured without real-time priority");
	return well;
}

/* Repeats a window until nothing disturbed it; returns false if ATTEMPTS of them did not do. */
static bool ask_undisturbed(struct lock_bench *l, const struct request *request, struct reply *reply)
{
	for (unsigned attempt = 0; attempt < ATTEMPTS; attempt++) {
		if (!session_ask(&l->session, request, sizeof(*request), reply, sizeof(*reply)))
			return false;
		l->pinned |= request->part != PART_CONTENDED || request->threads <= machine_cpus();
		l->real_time |= reply->real_time;
		if (reply->undisturbed)
			return true;
	}
	return false;
}

static void add_round(struct bench *bench, const struct row *row, enum lock_kind_number kind,
		      const struct reply *reply)
{
	for (unsigned m = 0; m < METRICS && row->metrics[m].name; m++) {
		const struct metric *metric = &row->metrics[m];
		struct cell cell = {row->group,   row->test,    row->parameter,
				    metric->name, metric->unit, metric->better};
		if (metric->column && kind != row->kinds[0])
			continue;
		/* A run of one acquisition has no later ones; one CPU has no line to exchange. */
		if (reply->value[m] > 0)
			results_add(&bench->results, &cell,
				    metric->column ? metric->column : lock_kinds[kind].name,
				    kind == KIND_EMPTY ? ROLE_FLOOR : ROLE_MEASURED, reply->value[m]);
	}
}

static const char line_metric[] = "line to and fro", line_column[] = "these CPUs";

static const struct series *series_of(const struct lock_bench *l, const struct row *row, const char *metric,
				      const char *column)
{
	struct cell cell = {
		.group = row->group, .test = row->test, .parameter = row->parameter, .metric = metric};
	return results_find(&l->bench->results, &cell, column);
}

/* The places that the CPUs had in a row's rounds, told apart by the line's round trip, at `border`. */
struct places {
	bool differ;
	double border;
};

static struct places places_of(const struct lock_bench *l, const struct row *row)
{
	const struct series *line = series_of(l, row, line_metric, line_column);
	if (!line || line->count == 0)
		return (struct places){.differ = false};
	double least = minimum_of(line->samples, line->count), most = least;
	for (unsigned i = 0; i < line->count; i++)
		most = fmax(most, line->samples[i]);
	return (struct places){.differ = !same_place(least, most), .border = sqrt(least * most)};
}

/*
 * Measures each kind in turn, beginning with another one each round.  Returns false if a window is missing.
 */
static bool measure_round(struct lock_bench *l, const struct row *row, unsigned round,
			  const enum lock_kind_number *kinds, unsigned count, struct reply *replies)
{
	for (unsigned turn = 0; turn < count; turn++) {
		unsigned at = (turn + round) % count;
		struct request request = row->request;
		request.kind = kinds[at];
		if (!ask_undisturbed(l, &request, &replies[at]))
			return false;
	}
	return true;
}

/* Whether the CPUs moved between the windows of a round, which then compares nothing. */
static bool moved_in_round(const struct row *row, const struct reply *replies, unsigned count)
{
	if (row->request.part != PART_CONTENDED || machine_cpus() < 2)
		return false;
	double least = replies[0].value[2], most = least;
	for (unsigned i = 1; i < count; i++) {
		least = fmin(least, replies[i].value[2]);
		most = fmax(most, replies[i].value[2]);
	}
	return !same_place(least, most);
}

static void run_row(struct lock_bench *l, const struct row *row)
{
	struct results *results = &l->bench->results;
	enum lock_kind_number kinds[LOCK_KINDS];
	unsigned count = 0, asked = l->bench->settings.rounds, rounds = asked ? asked : row->rounds;
	for (unsigned i = 0; i < row->kind_count; i++)
		if (l->kinds & 1u << row->kinds[i])
			kinds[count++] = row->kinds[i];
	if (count == 0 ||
	    results_have(results, row->group, row->test, row->parameter, lock_kinds[kinds[0]].name, rounds))
		return;
	results_drop(results, row->group, row->test, row->parameter);
	for (unsigned round = 0; round < rounds && !l->session.broken; round++) {
		struct reply replies[LOCK_KINDS];
		bool whole = false;
		bench_progress(l->bench, row->test, row->parameter);
		for (unsigned attempt = 0; !whole && attempt <= ROUNDS_REPEATED; attempt++) {
			if (!measure_round(l, row, round, kinds, count, replies))
				break;
			whole = !moved_in_round(row, replies, count);
		}
		/* A round with a window missing is discarded: pairs must share the same moments. */
		for (unsigned i = 0; whole && i < count; i++)
			add_round(l->bench, row, kinds[i], &replies[i]);
		if (!asked && row->rounds_if_moved && places_of(l, row).differ)
			rounds = row->rounds_if_moved;
	}
	bench_save(l->bench);
}

static void note_missing(struct lock_bench *l)
{
	static const char *const texts[LOCK_KINDS] = {
#define LOCK_KIND(number, name, class, text) text,
#include "lock_kinds.def"
#undef LOCK_KIND
	};
	for (unsigned i = 0; i < LOCK_KINDS; i++)
		if (!(l->kinds & 1u << i)) {
			char text[200];
			snprintf(text, sizeof(text), "not found, skipped: %s", texts[i]);
			results_note(&l->bench->results, lock_kinds[i].name, text);
		}
}

static void run_alone(struct lock_bench *l)
{
	enum lock_kind_number kinds[LOCK_KINDS];
	for (unsigned i = 0; i < LOCK_KINDS; i++)
		kinds[i] = i;
	run_row(l, &(struct row){.group = "locks",
				 .test = "alone",
				 .parameter = "lock and unlock",
				 .metrics = {{"pair", TICKS_UNIT, BETTER_LOWER, NULL}},
				 .kinds = kinds,
				 .kind_count = LOCK_KINDS,
				 .rounds = 101,
				 .request = {.part = PART_ALONE}});
}

static void run_migratory(struct lock_bench *l)
{
	static const unsigned lengths[] = {1, 2, 3, 4, 8, 16, 64};
	static const enum lock_kind_number kinds[] = {KIND_SPIN, KIND_DEMOTING};
	if (machine_cpus() < 2) {
		results_note(&l->bench->results, "migratory locks", "left out: they need two CPUs");
		return;
	}
	if (!lock_kinds_demote())
		results_note(&l->bench->results, NOTE_NO_DEMOTE,
			     "not supported by this CPU: the instruction is a NOP, and the demoting unlock a "
			     "call for nothing");
	for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		char parameter[RESULTS_NAME];
		snprintf(parameter, sizeof(parameter), "k = %u", lengths[i]);
		run_row(l, &(struct row){.group = "locks",
					 .test = "migratory",
					 .parameter = parameter,
					 .metrics = {{"remote acquisition", TICKS_UNIT, BETTER_LOWER, NULL},
						     {"local acquisition", TICKS_UNIT, BETTER_LOWER, NULL},
						     {"pair, whole turn", TICKS_UNIT, BETTER_LOWER, NULL}},
					 .kinds = kinds,
					 .kind_count = 2,
					 .rounds = 21,
					 .request = {.part = PART_MIGRATORY, .length = lengths[i]}});
	}
}

/* Returns the library's own setting. */
static unsigned usual_races(void)
{
	unsigned races = cpuslab_pagelock_set_unfairness(0);
	cpuslab_pagelock_set_unfairness(races);
	return races;
}

struct share {
	double lines, worst; /* medians: of the round trip; of our turns to the worst rival's */
	unsigned rounds;
};

/* Over the rounds whose round trip was at least `low` and below `high`.  Our lock is the row's first. */
static struct share share_between(const struct lock_bench *l, const struct row *row, double low, double high)
{
	const struct series *line = series_of(l, row, line_metric, line_column),
			    *ours = series_of(l, row, row->metrics[0].name, lock_kinds[row->kinds[0]].name);
	struct share share = {.worst = INFINITY};
	double lines[ROUNDS_MOST], ratios[ROUNDS_MOST];
	for (unsigned i = 1; i < row->kind_count; i++) {
		const struct series *theirs =
			series_of(l, row, row->metrics[0].name, lock_kinds[row->kinds[i]].name);
		share.rounds = 0;
		for (unsigned round = 0; theirs && round < theirs->count && round < ROUNDS_MOST; round++)
			if (line->samples[round] >= low && line->samples[round] < high) {
				lines[share.rounds] = line->samples[round];
				ratios[share.rounds++] = ours->samples[round] / theirs->samples[round];
			}
		share.worst = theirs ? fmin(share.worst, median_of(ratios, share.rounds)) : share.worst;
	}
	share.lines = median_of(lines, share.rounds);
	return share;
}

/* Notes what the CPUs' places did to a row, if they had more than one while it was measured. */
static void note_places(struct lock_bench *l, const struct row *row)
{
	struct places places = places_of(l, row);
	char name[RESULTS_NAME + 40], text[200];
	if (!places.differ)
		return;
	struct share near = share_between(l, row, 0, places.border),
		     far = share_between(l, row, places.border, INFINITY);
	if (near.rounds < ROUNDS_OF_A_PLACE || far.rounds < ROUNDS_OF_A_PLACE)
		return;
	snprintf(name, sizeof(name), "%s, %s", row->test, row->parameter);
	snprintf(text, sizeof(text),
		 "the CPUs moved: %.2f of the best other's turns in %u rounds where a line took "
		 "%.0f " TICKS_UNIT " to and fro, %.2f in %u where it took %.0f",
		 near.worst, near.rounds, near.lines, far.worst, far.rounds, far.lines);
	results_note(&l->bench->results, name, text);
}

/*
 * Two threads fall into one rhythm or another and keep it for a window, so many windows are needed.  A
 * crowd's windows are long, and alike as long as the CPUs stay in one place.
 */
static void run_contest(struct lock_bench *l, struct row row)
{
	bool pinned = row.request.threads <= machine_cpus();
	row.metrics[0] = (struct metric){"turns", "/s", BETTER_HIGHER, NULL};
	row.metrics[1] = (struct metric){"longest wait", "us", BETTER_LOWER, NULL};
	row.metrics[2] = (struct metric){line_metric, TICKS_UNIT, BETTER_LOWER, line_column};
	row.rounds = pinned ? ROUNDS_PINNED : ROUNDS_OF_A_CROWD;
	row.rounds_if_moved = pinned ? 0 : ROUNDS_OF_A_CROWD_MOVED;
	row.request.part = PART_CONTENDED;
	row.request.milliseconds = pinned ? 10 : CROWD_WINDOW;
	unsigned slices = row.request.threads * SLICE / machine_cpus();
	row.request.warm_up = pinned ? 0 : slices < CROWD_WARM_UP ? slices : CROWD_WARM_UP;
	run_row(l, &row);
	note_places(l, &row);
}

static void run_contest_of(struct lock_bench *l, struct row row, enum lock_class class, const char *name)
{
	enum lock_kind_number kinds[LOCK_KINDS];
	char test[RESULTS_NAME];
	snprintf(test, sizeof(test), "%s, %u threads", name, row.request.threads);
	row.test = test;
	row.kinds = kinds;
	for (unsigned i = 0; i < LOCK_KINDS; i++)
		if (lock_kinds[i].class == class)
			kinds[row.kind_count++] = i;
	run_contest(l, row);
}

static void run_contests_under(struct lock_bench *l, unsigned threads, unsigned inside, unsigned outside)
{
	char parameter[RESULTS_NAME];
	snprintf(parameter, sizeof(parameter), "%u in, %u out", inside, outside);
	struct row row = {
		.group = "locks",
		.parameter = parameter,
		.request = {
			.threads = threads, .inside = inside, .outside = outside, .races = usual_races()}};
	run_contest_of(l, row, LOCK_SLEEPING, "sleeping");
	run_contest_of(l, row, LOCK_SPINNING, "spinning");
}

/* Runs all loads, or the one of --load. */
static void run_contests_of(struct lock_bench *l, unsigned threads)
{
	static const struct {
		unsigned inside, outside;
	} loads[] = {{0, 0}, {50, 50}, {50, 1000}, {1000, 50}};
	const struct settings *settings = &l->bench->settings;
	if (settings->load_given) {
		run_contests_under(l, threads, settings->inside, settings->outside);
		return;
	}
	for (unsigned load = 0; load < sizeof(loads) / sizeof(loads[0]); load++)
		run_contests_under(l, threads, loads[load].inside, loads[load].outside);
}

static void run_contended(struct lock_bench *l)
{
	static const unsigned crowds[] = {2, 8, 64, THREADS_MAX};
	unsigned asked = l->bench->settings.threads;
	if (asked) {
		run_contests_of(l, bench_threads(l->bench, THREADS_MAX));
		return;
	}
	for (unsigned crowd = 0; crowd < sizeof(crowds) / sizeof(crowds[0]); crowd++)
		run_contests_of(l, crowds[crowd]);
}

bool group_locks(struct bench *bench)
{
	struct lock_bench l;
	if (!open_locks(&l, bench))
		return false;
	note_missing(&l);
	if (bench_asked_for(bench, "alone"))
		run_alone(&l);
	if (bench_asked_for(bench, "migratory"))
		run_migratory(&l);
	if (bench_asked_for(bench, "contended"))
		run_contended(&l);
	return close_locks(&l);
}

bool group_pagelock(struct bench *bench)
{
	static const unsigned races[] = {0, 1, 5, 20, 1000000};
	static const enum lock_kind_number kinds[] = {KIND_PAGE};
	struct lock_bench l;
	if (bench_asked_for(bench, "share"))
		unlock_share(bench);
	if (!open_locks(&l, bench))
		return false;
	for (unsigned i = 0; bench_asked_for(bench, "fairness") && i < sizeof(races) / sizeof(races[0]);
	     i++) {
		char parameter[RESULTS_NAME];
		snprintf(parameter, sizeof(parameter), races[i] < 1000 ? "%u races" : "any number of races",
			 races[i]);
		run_contest(
			&l,
			(struct row){
				.group = "pagelock",
				.test = "fairness, 8 threads",
				.parameter = parameter,
				.kinds = kinds,
				.kind_count = 1,
				.request = {.threads = 8, .inside = 50, .outside = 50, .races = races[i]}});
	}
	return close_locks(&l);
}
