/* SPDX-License-Identifier: MIT */
/*
 * background_life: when there is a background thread, and when there is none, with background:true.
 *
 *   main       none while constructors run, however much they free; one once main does
 *   names      its name, its blocked signals, and that it may do nothing but what it needs
 *   forks      none in a forked child until that frees much; then one of its own, also in the child's child,
 * and while the parent's gives memory back execs      a program that replaces itself meanwhile vforks     a
 * vfork child that frees makes none, and leaves its parent's exits      processes that end at every stage of
 * it daemon     daemon(3) takes none along; the daemon has its own refused    RLIMIT_NPROC: the program goes
 * on, and gives memory back by its own calls sandboxed  a filter refuses clone, or what the thread confines
 * itself with: the same alone      when main has ended by pthread_exit, the process ends with its last other
 * thread
 */
#include "check.h"

#include <dirent.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { MIB = 1 << 20, BLOCKS = 20000, BYTES = 1000 };

static void *blocks[BLOCKS];

/* As much as needs the thread: some 20 MiB. */
static void use_memory(void)
{
	for (size_t i = 0; i < BLOCKS; i++) {
		CHECK((blocks[i] = malloc(BYTES)));
		memset(blocks[i], 1, BYTES);
	}
	for (size_t i = 0; i < BLOCKS; i++)
		free(blocks[i]);
}

static void read_own(const char *path, char *text, size_t bytes)
{
	int file = open(path, O_RDONLY);

	CHECK(file >= 0, "%s", path);
	ssize_t length = read(file, text, bytes - 1);

	close(file);
	CHECK(length > 0);
	text[length] = 0;
}

/* Without a call of the library's. */
static unsigned long threads(void)
{
	static const char name[] = "\nThreads:";
	char text[4096];

	read_own("/proc/self/status", text, sizeof text);
	const char *line = strstr(text, name);

	CHECK(line);
	return strtoul(line + sizeof name - 1, NULL, 10);
}

/* Goes on until there is a thread. */
static void need_thread(void)
{
	for (unsigned rounds = 0; threads() < 2; rounds++) {
		CHECK(rounds < 1000);
		use_memory();
		usleep(1000);
	}
}

static unsigned long threads_before_main;

__attribute__((constructor)) static void use_early(void)
{
	const char *options = getenv("CPUSLAB_OPTIONS");

	if (!options || !strstr(options, "background"))
		return;
	for (unsigned i = 0; i < 8; i++)
		use_memory();
	usleep(150000);
	use_memory();
	threads_before_main = threads();
}

/* ---- the variants -------------------------------------------------------------------------------------- */

static void in_main(void)
{
	CHECK(threads_before_main == 1);
	CHECK(threads() == 1);
	need_thread();
}

static void names(void)
{
	char path[64], text[4096];
	long thread = 0;

	need_thread();
	DIR *tasks = opendir("/proc/self/task");

	for (struct dirent *task; (task = readdir(tasks));)
		if (strtol(task->d_name, NULL, 10) > 0 && strtol(task->d_name, NULL, 10) != getpid())
			thread = strtol(task->d_name, NULL, 10);
	closedir(tasks);
	CHECK(thread);
	/* It does these things first. */
	snprintf(path, sizeof path, "/proc/self/task/%ld/status", thread);
	do {
		usleep(1000);
		read_own(path, text, sizeof text);
	} while (!strstr(text, "\nSeccomp:\t2"));
	CHECK(strncmp(text, "Name:\tcpuslab\n", 14) == 0);
	CHECK(strstr(text, "\nNoNewPrivs:\t1"));
	/* All but SIGKILL and SIGSTOP, which nobody can block. */
	CHECK(strstr(text, "\nSigBlk:\tfffffffffffbfeff"), "%s", strstr(text, "\nSigBlk"));
}

static void end_well(pid_t child)
{
	int status;

	CHECK(child > 0);
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", status);
}

static void forks(void)
{
	need_thread();
	for (unsigned i = 0; i < 60; i++) {
		pid_t child = fork();

		if (child == 0) {
			CHECK(threads() == 1);
			free(malloc(100));
			CHECK(threads() == 1);
			need_thread();
			pid_t grandchild = fork();

			if (grandchild == 0) {
				CHECK(threads() == 1);
				need_thread();
				_exit(0);
			}
			end_well(grandchild);
			_exit(0);
		}
		if (i % 2)
			use_memory();
		usleep(i % 7 * 300);
		end_well(child);
	}
}

static void execs(char **argv)
{
	char *again[] = {argv[0], (char *)"exec", NULL};

	for (unsigned i = 0; i < 20; i++) {
		pid_t child = fork();

		if (child == 0) {
			use_memory();
			usleep(i * 200);
			execv("/proc/self/exe", again);
			_exit(1);
		}
		end_well(child);
	}
}

static void vforks(void)
{
	for (volatile unsigned i = 0; i < 20; i++) {
		pid_t child = vfork();

		if (child == 0) {
			use_memory();
			_exit(0);
		}
		end_well(child);
		/* None was made while a child that used as much had the memory. */
		CHECK(i > 0 || threads() == 1);
		need_thread();
	}
}

static void exits(void)
{
	for (unsigned i = 0; i < 100; i++) {
		pid_t child = fork();

		if (child == 0) {
			use_memory();
			usleep(i * 50);
			if (i % 2)
				exit(0);
			_exit(0);
		}
		end_well(child);
	}
}

static void in_daemon(void)
{
	int ends[2];
	char count = 0;

	need_thread();
	CHECK(pipe(ends) == 0);
	pid_t child = fork();

	if (child == 0) {
		need_thread();
		CHECK(daemon(0, 1) == 0);
		CHECK(threads() == 1);
		need_thread();
		count = (char)threads();
		CHECK(write(ends[1], &count, 1) == 1);
		_exit(0);
	}
	close(ends[1]);
	end_well(child);
	CHECK(read(ends[0], &count, 1) == 1);
	CHECK(count == 2);
}

/* The program gives memory back as it does without the option. */
static void goes_on(void)
{
	size_t start = check_resident();

	for (unsigned i = 0; i < 20; i++)
		use_memory();
	/* One that may not confine itself has to begin before it can end. */
	for (unsigned rounds = 0; threads() != 1; rounds++) {
		CHECK(rounds < 1000);
		usleep(1000);
	}
	usleep(400000);
	for (unsigned i = 0; i < 12; i++) {
		usleep(110000);
		free(malloc(MIB));
		free(malloc(3000000));
	}
	CHECK(check_resident() < start + 12 * MIB, "%zu after %zu", check_resident(), start);
}

static void refused(void)
{
	struct rlimit none = {0, 0};

	/* The limit does not concern root. */
	if (getuid() == 0)
		CHECK(setresuid(65534, 65534, 65534) == 0);
	CHECK(setrlimit(RLIMIT_NPROC, &none) == 0);
	goes_on();
}

static void refuse(uint32_t number)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof filter / sizeof *filter, filter};

	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
		check_skip("no filters for system calls here");
}

static void sandboxed(void)
{
	static const uint32_t numbers[] = {SYS_clone, SYS_seccomp};

	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
		pid_t child = fork();

		if (child == 0) {
			refuse(numbers[i]);
			goes_on();
			_exit(0);
		}
		end_well(child);
	}
}

static void *outlive(void *unused)
{
	usleep(50000);
	use_memory();
	return unused;
}

static void alone(void)
{
	pid_t child = fork();
	pthread_t thread;

	if (child == 0) {
		need_thread();
		CHECK(pthread_create(&thread, NULL, outlive, NULL) == 0);
		pthread_exit(NULL);
	}
	end_well(child);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} variants[] = {
		{"main", in_main},    {"names", names}, {"forks", forks},
		{"vforks", vforks},   {"exits", exits}, {"daemon", in_daemon},
		{"refused", refused}, {"alone", alone}, {"sandboxed", sandboxed},
	};
	const char *given = getenv("CPUSLAB_OPTIONS"), *variant = argc > 1 ? argv[1] : "main";
	char options[256];

	check_watchdog(100);
	if (strcmp(variant, "exec") == 0)
		return 0;
	if (!given || !strstr(given, "background")) {
		snprintf(options, sizeof options, "%s%sbackground:true,decay:200", given ? given : "",
			 given ? "," : "");
		setenv("CPUSLAB_OPTIONS", options, 1);
		execv("/proc/self/exe", argv);
		CHECK(false, "execv");
	}
	if (strcmp(variant, "execs") == 0) {
		execs(argv);
		return 0;
	}
	for (size_t i = 0; i < sizeof variants / sizeof *variants; i++)
		if (strcmp(variants[i].name, variant) == 0) {
			variants[i].run();
			return 0;
		}
	CHECK(false, "no variant is called %s", variant);
}
