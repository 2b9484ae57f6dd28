/* SPDX-License-Identifier: MIT */
/*
 * background_memory: with background:true memory goes back while the program makes no call of the library's,
 * or none that gives any back.
 *
 *   idle     nothing runs: most of the pages without an object go, those of partial slabs included
 *   busy     the same beside two threads whose few objects come and go
 *   end      all that was freed goes
 *   at_once  the same with decay:0
 *   callers  a thread that may not give memory back frees everything, and allocates again
 *   asleep   once all is back the thread sleeps without a timer, until the program goes on
 */
#include "check.h"

#include <dirent.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { MIB = 1 << 20, TOTAL = 96 * MIB, KEPT = 20, OBJECTS = 100000 };

static void **objects;
static size_t count;
static bool stop;

/* 512 bytes, 1 KiB and 2 KiB by turns, as many bytes of each. */
static size_t size_of(size_t number)
{
	return number % 7 < 4 ? 512 : number % 7 < 6 ? 1024 : 2048;
}

static void fill(void)
{
	size_t bytes = 0;

	for (count = 0; bytes < TOTAL && count < OBJECTS; count++) {
		size_t size = size_of(count);

		CHECK((objects[count] = malloc(size)));
		memset(objects[count], 1, size);
		bytes += size;
	}
	CHECK(bytes >= TOTAL / 2);
}

/* Frees all but one in KEPT, or all. */
static void empty(bool all)
{
	for (size_t i = 0; i < count; i++)
		if (all || i % KEPT) {
			free(objects[i]);
			objects[i] = NULL;
		}
}

/* Waits, without a call of the library's, until the process has at most so many bytes. */
static void wait_for(size_t most)
{
	size_t tenths = 0;

	while (check_resident() > most) {
		CHECK(tenths++ < 600, "%zu bytes are resident, %zu may be", check_resident(), most);
		usleep(100000);
	}
	dprintf(STDOUT_FILENO, "%zu MiB are left, after %zu.%zu s\n", check_resident() / MIB, tenths / 10,
		tenths % 10);
}

/* ---- the library's thread ------------------------------------------------------------------------------ */

/* Finds it by its name; 0 for none.  opendir() allocates. */
static long find_thread(void)
{
	DIR *tasks = opendir("/proc/self/task");
	long found = 0;

	CHECK(tasks);
	for (struct dirent *task; !found && (task = readdir(tasks));) {
		char path[300], name[32];

		snprintf(path, sizeof path, "/proc/self/task/%s/comm", task->d_name);
		int file = open(path, O_RDONLY);

		if (file < 0)
			continue;
		if (read(file, name, sizeof name) == 8 && memcmp(name, "cpuslab\n", 8) == 0)
			found = strtol(task->d_name, NULL, 10);
		close(file);
	}
	closedir(tasks);
	return found;
}

/* Reads a number from a thread's status. */
static unsigned long read_status(long thread, const char *name, int base)
{
	char path[64], text[4096];

	snprintf(path, sizeof path, "/proc/self/task/%ld/status", thread);
	int file = open(path, O_RDONLY);

	CHECK(file >= 0);
	ssize_t length = read(file, text, sizeof text - 1);

	close(file);
	CHECK(length > 0);
	text[length] = 0;
	const char *line = strstr(text, name);

	CHECK(line, "no %s", name);
	return strtoul(line + strlen(name), NULL, base);
}

/* ---- the variants -------------------------------------------------------------------------------------- */

static bool is_hardened(void)
{
	return strstr(getenv("CPUSLAB_OPTIONS"), "hardened");
}

static void idle(void)
{
	fill();
	size_t peak = check_resident();

	empty(false);
	/* In hardened mode the marks of all objects stay, an eighth of the heap, where any is left. */
	wait_for(is_hardened() ? peak / 100 * 45 : peak / 100 * 28);
	empty(true);
}

static void *come_and_go(void *unused)
{
	void *own[64] = {0};
	uint64_t state = (uintptr_t)&own;

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		size_t i = check_below(&state, 64);

		free(own[i]);
		CHECK((own[i] = malloc(64 + check_below(&state, 1024))));
		*(char *)own[i] = 1;
		if (check_below(&state, 256) == 0)
			usleep(200);
	}
	for (size_t i = 0; i < 64; i++)
		free(own[i]);
	return unused;
}

static void busy(void)
{
	pthread_t threads[2];

	fill();
	for (size_t i = 0; i < 2; i++)
		CHECK(pthread_create(&threads[i], NULL, come_and_go, NULL) == 0);
	size_t peak = check_resident();

	empty(false);
	/* 23 to 27 MiB of 88 seen. */
	wait_for(is_hardened() ? peak / 100 * 45 : peak / 100 * 33);
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (size_t i = 0; i < 2; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	empty(true);
}

static void end(void)
{
	size_t start = check_resident();

	fill();
	empty(true);
	wait_for(start + TOTAL / (is_hardened() ? 4 : 16));
}

/* With the option for the decay time that main() has set. */
static void at_once(void)
{
	end();
}

static void forbid_giving(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MADV_DONTNEED, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof filter / sizeof *filter, filter};

	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
		check_skip("no filters for system calls here");
}

static void callers(void)
{
	/* Makes the thread. */
	fill();
	empty(true);
	while (!find_thread())
		usleep(10000);
	size_t start = check_resident();

	forbid_giving();
	for (unsigned round = 0; round < 4; round++) {
		fill();
		void *large = malloc(32 * MIB);

		CHECK(large);
		memset(large, 1, 32 * MIB);
		empty(round % 2);
		free(large);
		empty(true);
	}
	wait_for(start + TOTAL / (is_hardened() ? 4 : 16));
}

static void asleep(void)
{
	for (unsigned round = 0; round < 2; round++) {
		end();
		long thread = find_thread();
		unsigned long before, now = 0;
		unsigned halves = 0;

		CHECK(thread);
		do {
			CHECK(halves++ < 60, "it wakes up, %lu times", now);
			before = now;
			usleep(500000);
			now = read_status(thread, "\nvoluntary_ctxt_switches:", 10);
		} while (now != before);
	}
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name, *options;
		void (*run)(void);
	} variants[] = {
		{"idle", "", idle},       {"busy", "", busy},
		{"end", "", end},         {"at_once", ",decay:0", at_once},
		{"callers", "", callers}, {"asleep", ",decay:200", asleep},
	};
	const char *given = getenv("CPUSLAB_OPTIONS");

	check_watchdog(100);
	if (check_valgrind())
		check_skip("valgrind keeps shadows resident");
	for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
		if (argc < 2 || strcmp(variants[i].name, argv[1]) != 0)
			continue;
		if (!given || !strstr(given, "background")) {
			char options[256];

			snprintf(options, sizeof options, "%s%sbackground:true%s", given ? given : "",
				 given ? "," : "", variants[i].options);
			setenv("CPUSLAB_OPTIONS", options, 1);
			execv("/proc/self/exe", argv);
			CHECK(false, "execv");
		}
		objects = mmap(NULL, OBJECTS * sizeof *objects, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		CHECK(objects != MAP_FAILED);
		memset(objects, 0, OBJECTS * sizeof *objects);
		variants[i].run();
		return 0;
	}
	CHECK(false, "no such variant");
}
