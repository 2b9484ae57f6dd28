/* SPDX-License-Identifier: MIT */
/*
 * check: what all tests share.  A test is a program that exits 0 when its property holds, 77 when the machine
 * cannot show it (ctest counts that as skipped), and anything else when it does not hold.
 *
 * The tests run on any malloc: what only cpuslab promises depends on check_cpuslab(), whose symbols are weak.
 * Nothing here uses stdio, which allocates: even a failing allocator must be able to report.
 */
#ifndef CPUSLAB_TESTS_CHECK_H
#define CPUSLAB_TESTS_CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <cpuslab/cpuslab.h>

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK_SKIPPED 77

/*
 * A failed CHECK ends the process, since the heap can no longer be trusted.  A printf text may follow the
 * condition.
 */
#define CHECK(condition, ...)                                                                                \
	do {                                                                                                 \
		if (__builtin_expect(!(condition), 0))                                                       \
			check_failed(__FILE__, __LINE__, #condition, " " __VA_ARGS__);                       \
	} while (0)

__attribute__((noreturn, noinline, cold, format(printf, 4, 5))) static void
check_failed(const char *file, int line, const char *condition, const char *format, ...)
{
	char text[512];
	int error = errno,
	    used = snprintf(text, sizeof text, "%s:%d: CHECK(%s) failed:", file, line, condition);
	va_list arguments;
	va_start(arguments, format);
	if (used > 0 && (size_t)used < sizeof text)
		used += vsnprintf(text + used, sizeof text - (size_t)used, format, arguments);
	va_end(arguments);
	if (used > 0 && (size_t)used < sizeof text)
		used += snprintf(text + used, sizeof text - (size_t)used, " (errno %d, pid %d)\n", error,
				 (int)getpid());
	size_t length = used < 0 ? 0 : (size_t)used < sizeof text ? (size_t)used : sizeof text - 1;
	if (write(STDERR_FILENO, text, length) < 0)
		_exit(3);
#ifdef CHECK_ABORTS
	abort(); /* a fuzzer saves the input that did this */
#endif
	_exit(1);
}

__attribute__((noreturn, unused, format(printf, 1, 2))) static void check_skip(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	dprintf(STDOUT_FILENO, "skipped: ");
	vdprintf(STDOUT_FILENO, format, arguments);
	dprintf(STDOUT_FILENO, "\n");
	va_end(arguments);
	_exit(CHECK_SKIPPED);
}

/* ---- the allocator under test -------------------------------------------------------------------------- */

#ifdef __cplusplus
extern "C" {
#endif
extern __typeof__(cpuslab_read_counters) cpuslab_read_counters __attribute__((weak));
extern __typeof__(cpuslab_vcpu_mode) cpuslab_vcpu_mode __attribute__((weak));
extern __typeof__(cpuslab_vcpu_mode_name) cpuslab_vcpu_mode_name __attribute__((weak));
#ifdef __cplusplus
}
#endif

static inline bool check_cpuslab(void)
{
	return cpuslab_read_counters != NULL && cpuslab_vcpu_mode != NULL;
}

/* Whether restartable sequences serve the fast path. */
static inline bool check_rseq(void)
{
	return check_cpuslab() && cpuslab_vcpu_mode() != CPUSLAB_VCPU_THREAD_SLOT;
}

static inline const char *check_mode(void)
{
	return check_cpuslab() && cpuslab_vcpu_mode_name ? cpuslab_vcpu_mode_name() : "another malloc";
}

static inline struct cpuslab_counters check_counters(void)
{
	struct cpuslab_counters counters;
	memset(&counters, 0, sizeof counters);
	if (cpuslab_read_counters)
		cpuslab_read_counters(&counters);
	return counters;
}

/*
 * Whether CPUSLAB_DEBUG checks every class and cache: objects are poisoned, reports are long, and sizes are
 * rounded less.
 */
static inline bool check_debugged(void)
{
	const char *debug = getenv("CPUSLAB_DEBUG");
	return debug && *debug;
}

/* Whether every class and cache is hardened: none is merged, and objects are reused in random order. */
static inline bool check_hardened(void)
{
	const char *options = getenv("CPUSLAB_OPTIONS");
	return options && strstr(options, "hardened:1");
}

/* ---- how long to run ----------------------------------------------------------------------------------- */

static inline bool check_valgrind(void)
{
	return getenv("CPUSLAB_VALGRIND") != NULL;
}

static inline bool check_soak(void)
{
	const char *soak = getenv("CPUSLAB_SOAK");
	return soak && *soak && *soak != '0';
}

/* A number of rounds: for everyday runs, for `make soak`, and under valgrind (30× slower). */
static inline unsigned long check_rounds(unsigned long everyday, unsigned long soak, unsigned long valgrind)
{
	return check_valgrind() ? valgrind : check_soak() ? soak : everyday;
}

/* ---- random numbers: xorshift64*, one state per thread, so that a run can be repeated ------------------ */

static inline uint64_t check_random(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * 0x2545f4914f6cdd1du;
}

static inline size_t check_below(uint64_t *state, size_t bound)
{
	return (size_t)((check_random(state) >> 16) % bound);
}

/* ---- stamps: bytes that follow from a seed, so that every byte of an object can be verified -------- */

static inline uint8_t check_stamp_byte(uint64_t seed, size_t offset)
{
	uint64_t word = (seed + offset / 8) * 0x9e3779b97f4a7c15u;
	return (uint8_t)(word >> (8 * (offset % 8)));
}

/* A loop: with -fno-builtin, memcpy() would be a call for every eight bytes stamped. */
static inline void check_stamp(void *object, size_t size, uint64_t seed)
{
	uint8_t *bytes = (uint8_t *)object;
	size_t offset = 0;
	for (; offset + 8 <= size; offset += 8) {
		uint64_t word = (seed + offset / 8) * 0x9e3779b97f4a7c15u;
		__builtin_memcpy(bytes + offset, &word, 8);
	}
	for (; offset < size; offset++)
		bytes[offset] = check_stamp_byte(seed, offset);
}

/* Offset of the first byte that differs; `size` when none does. */
static inline size_t check_stamp_end(const void *object, size_t size, uint64_t seed)
{
	const uint8_t *bytes = (const uint8_t *)object;
	size_t offset = 0;
	for (; offset + 8 <= size; offset += 8) {
		uint64_t word;
		__builtin_memcpy(&word, bytes + offset, 8);
		if (word != (seed + offset / 8) * 0x9e3779b97f4a7c15u)
			break;
	}
	while (offset < size && bytes[offset] == check_stamp_byte(seed, offset))
		offset++;
	return offset;
}

#define CHECK_STAMP(object, size, seed)                                                                      \
	do {                                                                                                 \
		size_t stamp_end = check_stamp_end(object, size, seed);                                      \
		CHECK(stamp_end == (size), "object %p of %zu bytes changed at offset %zu", (void *)(object), \
		      (size_t)(size), stamp_end);                                                            \
	} while (0)

static inline bool check_all_bytes(const void *object, size_t size, uint8_t value)
{
	const uint8_t *bytes = (const uint8_t *)object;
	return size == 0 || (bytes[0] == value && memcmp(bytes, bytes + 1, size - 1) == 0);
}

/* ---- the process ----------------------------------------------------------------------------------- */

/* Resident bytes of this process, read without stdio so that the reading itself allocates nothing. */
static inline size_t check_resident(void)
{
	char text[128];
	int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
	CHECK(file >= 0);
	ssize_t length = read(file, text, sizeof text - 1);
	CHECK(length > 0);
	close(file);
	text[length] = 0;
	char *end;
	strtoul(text, &end, 10);
	return strtoul(end, NULL, 10) * (size_t)sysconf(_SC_PAGESIZE);
}

/* Those of them that are no file's: pages read but never written do not count. */
static inline size_t check_anonymous(void)
{
	char text[4096];
	int file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
	ssize_t length = read(file, text, sizeof text - 1);

	CHECK(file >= 0 && length > 0);
	close(file);
	text[length] = 0;
	const char *line = strstr(text, "RssAnon:");

	CHECK(line);
	return strtoul(line + 8, NULL, 10) << 10;
}

static inline unsigned check_cpus(void)
{
	cpu_set_t set;
	CHECK(sched_getaffinity(0, sizeof set, &set) == 0);
	return (unsigned)CPU_COUNT(&set);
}

/* Pins the calling thread to the first CPU that it may use. */
static inline void check_pin(void)
{
	cpu_set_t allowed, one;
	CHECK(sched_getaffinity(0, sizeof allowed, &allowed) == 0);
	CPU_ZERO(&one);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &allowed)) {
			CPU_SET(cpu, &one);
			break;
		}
	CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
}

static inline pthread_t check_thread(void *(*function)(void *), void *argument)
{
	pthread_t thread;
	int error = pthread_create(&thread, NULL, function, argument);
	CHECK(error == 0, "pthread_create: %s", strerror(error));
	return thread;
}

/*
 * Waits until a thread of this process sleeps in the kernel.  The thread stores its gettid() at `id` when it
 * starts; this function resets it.
 */
static inline void check_until_asleep(pid_t *id)
{
	char path[64], text[256];
	pid_t sleeper;

	while (!(sleeper = __atomic_exchange_n(id, 0, __ATOMIC_ACQUIRE)))
		sched_yield();
	snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)sleeper);
	for (;;) {
		int file = open(path, O_RDONLY | O_CLOEXEC);
		CHECK(file >= 0);
		ssize_t length = read(file, text, sizeof text - 1);
		CHECK(length > 0);
		close(file);
		text[length] = 0;
		if (strrchr(text, ')')[2] == 'S')
			return;
		sched_yield();
	}
}

static inline void *check_join(pthread_t thread)
{
	void *result;
	CHECK(pthread_join(thread, &result) == 0);
	return result;
}

/* Runs up to sixteen threads at once, each with its number. */
static inline void check_threads(uintptr_t threads, void *(*function)(void *))
{
	pthread_t thread[16];

	CHECK(threads <= 16);
	for (uintptr_t i = 0; i < threads; i++)
		thread[i] = check_thread(function, (void *)i);
	for (uintptr_t i = 0; i < threads; i++)
		check_join(thread[i]);
}

/*
 * A hang: the process consumes no CPU time for so many seconds and as many again, or as many seconds of CPU
 * time as all CPUs together could have given it.  A process that waits for a CPU because others have them, or
 * that was stopped for long, does not hang.
 */
static struct {
	unsigned seconds, idle; /* consecutive alarms without CPU time in between */
	uint64_t seen, most;    /* microseconds of CPU time */
} check_watch;

/* Without clock_gettime(), which some tests replace. */
static uint64_t check_cpu_time(void)
{
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 +
	       (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static void check_watchdog_bite(int signal_number)
{
	static const char text[] = "watchdog: this process hangs\n";
	const uint64_t least = 10000;
	uint64_t now = check_cpu_time(), before = check_watch.seen;
	(void)signal_number;
	check_watch.seen = now;
	check_watch.idle = now - before < least ? check_watch.idle + 1 : 0;
	if (check_watch.idle < 2 && now < check_watch.most)
		alarm(check_watch.seconds);
	else
		_exit(write(STDERR_FILENO, text, sizeof text - 1) < 0 ? 3 : 2);
}

/*
 * Turns a hang into a failure.  A forked child inherits the handler but not the alarm: it calls this again.
 */
static inline void check_watchdog(unsigned seconds)
{
	struct sigaction action;
	memset(&action, 0, sizeof action);
	action.sa_handler = check_watchdog_bite;
	action.sa_flags = SA_RESTART;
	check_watch.seconds = check_valgrind() ? seconds * 10 : check_soak() ? seconds * 100 : seconds;
	check_watch.idle = 0;
	check_watch.seen = check_cpu_time();
	check_watch.most = check_watch.seen + (uint64_t)check_watch.seconds * 1000000 * check_cpus();
	CHECK(sigaction(SIGALRM, &action, NULL) == 0);
	alarm(check_watch.seconds);
}

static inline int check_wait(pid_t child)
{
	int status;
	pid_t pid;
	do
		pid = waitpid(child, &status, 0);
	while (pid < 0 && errno == EINTR);
	CHECK(pid == child);
	return status;
}

#define CHECK_EXITED(status, code)                                                                           \
	do {                                                                                                 \
		int exit_status = (status);                                                                  \
		CHECK(WIFEXITED(exit_status) && WEXITSTATUS(exit_status) == (code),                          \
		      "the child ended with wait status %#x", (unsigned)exit_status);                        \
	} while (0)

/* Runs this program again from its start, with one argument and other options; it must succeed. */
static inline void check_again(const char *options, const char *argument)
{
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		setenv("CPUSLAB_OPTIONS", options, 1);
		execl("/proc/self/exe", program_invocation_name, argument, NULL);
		_exit(1);
	}
	CHECK_EXITED(check_wait(child), 0);
}

/*
 * Runs a function in a forked child and returns its wait status; what the child wrote to stderr is copied to
 * `text`.  A child that returns exits with 0.
 */
static inline int check_child(void (*function)(void *), void *argument, char *text, size_t text_size)
{
	int ends[2];
	size_t length = 0;
	CHECK(pipe2(ends, O_CLOEXEC) == 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		dup2(ends[1], STDERR_FILENO);
		check_watchdog(60);
		function(argument);
		_exit(0);
	}
	close(ends[1]);
	for (;;) {
		char rest[256];
		bool fits = length + 1 < text_size;
		ssize_t got = read(ends[0], fits ? text + length : rest,
				   fits ? text_size - 1 - length : sizeof rest);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			break;
		if (fits)
			length += (size_t)got;
	}
	close(ends[0]);
	text[length] = 0;
	return check_wait(child);
}

/* Likewise for a function that the allocator must stop, with these words in its report. */
static inline void check_stopped(void (*function)(void *), void *argument, const char *said)
{
	char text[4096];
	int status = check_child(function, argument, text, sizeof text);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && strstr(text, said),
	      "\"%s\" was to be said: wait status %#x, said: %s", said, (unsigned)status, text);
}

#endif
