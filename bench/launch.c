/* SPDX-License-Identifier: MIT */
#include "launch.h"

#include "machine.h"
#include "pin.h"
#include "ticks.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

char launch_program[] = "/proc/self/exe";

const char *launch_self(void)
{
	static char self[PATH_MAX];
	if (!self[0]) {
		ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
		if (length < 0)
			length = 0;
		self[length] = '\0';
	}
	return self;
}

bool launch_beside(const char *name, char path[static PATH_MAX])
{
	const char *self = launch_self(), *slash = strrchr(self, '/');
	snprintf(path, PATH_MAX, "%.*s/%s", slash ? (int)(slash - self) : 0, self, name);
	if (access(path, R_OK) == 0)
		return true;
	snprintf(path, PATH_MAX, CPUSLAB_LIBDIR "/cpuslab/%s", name);
	return access(path, R_OK) == 0;
}

static void redirect(int to, const char *path, int flags)
{
	int fd = open(path, flags, 0666);
	if (fd >= 0 && fd != to) {
		dup2(fd, to);
		close(fd);
	}
}

static void set_preload(const struct launch *launch)
{
	const char *library = launch->peer->library;
	unsetenv("LD_PRELOAD");
	if (launch->peer->environment)
		putenv((char *)launch->peer->environment);
	if (launch->indirect)
		setenv("BENCH_PRELOAD", *library ? library : "libc.so.6", 1);
	else if (*library)
		setenv("LD_PRELOAD", library, 1);
}

pid_t launch_start(const struct launch *launch)
{
	pid_t child = fork();
	if (child != 0)
		return child;
	if (launch->cpu >= 0)
		pin_to_cpu(launch->cpu);
	if (launch->directory && chdir(launch->directory) != 0)
		_exit(126);
	if (launch->input_fd)
		dup2(launch->input_fd, STDIN_FILENO);
	else
		redirect(STDIN_FILENO, "/dev/null", O_RDONLY);
	if (launch->output_fd)
		dup2(launch->output_fd, STDOUT_FILENO);
	else
		redirect(STDOUT_FILENO, launch->output ? launch->output : "/dev/null",
			 O_WRONLY | O_CREAT | O_TRUNC);
	if (launch->quiet)
		redirect(STDERR_FILENO, "/dev/null", O_WRONLY);
	if (launch->peer)
		set_preload(launch);
	execvp(launch->argv[0], launch->argv);
	_exit(127);
}

static double seconds_of(struct timeval time)
{
	return (double)time.tv_sec + 1e-6 * (double)time.tv_usec;
}

bool launch_wait(pid_t child, struct usage *usage)
{
	struct rusage used;
	int status;
	while (wait4(child, &status, 0, &used) < 0)
		if (errno != EINTR)
			return false;
	usage->cpu = seconds_of(used.ru_utime) + seconds_of(used.ru_stime);
	usage->peak_bytes = 1024.0 * (double)used.ru_maxrss;
	usage->faults = (double)(used.ru_minflt + used.ru_majflt);
	usage->exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	return status == 0;
}

bool launch_run(const struct launch *launch, struct usage *usage)
{
	double start = seconds_now();
	pid_t child = launch_start(launch);
	bool well = child > 0 && launch_wait(child, usage);
	usage->wall = seconds_now() - start;
	return well;
}

bool session_open(struct session *session, const struct peer *peer, const char *worker)
{
	int requests[2], replies[2];
	char *argv[] = {launch_program, "bench", "worker", (char *)worker, NULL};
	*session = (struct session){.child = -1, .to = -1, .from = -1, .broken = true};
	if (pipe2(requests, O_CLOEXEC) != 0)
		return false;
	if (pipe2(replies, O_CLOEXEC) != 0) {
		close(requests[0]);
		close(requests[1]);
		return false;
	}
	struct launch launch = {
		.argv = argv, .peer = peer, .cpu = -1, .input_fd = requests[0], .output_fd = replies[1]};
	session->child = launch_start(&launch);
	close(requests[0]);
	close(replies[1]);
	session->to = requests[1];
	session->from = replies[0];
	session->broken = session->child < 0;
	return !session->broken;
}

static bool read_all(int fd, void *to, size_t size)
{
	for (char *at = to; size > 0;) {
		ssize_t n = read(fd, at, size);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		at += n;
		size -= (size_t)n;
	}
	return true;
}

static bool write_all(int fd, const void *from, size_t size)
{
	for (const char *at = from; size > 0;) {
		ssize_t n = write(fd, at, size);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		at += n;
		size -= (size_t)n;
	}
	return true;
}

bool reporter_start(struct reporter *reporter, struct launch launch)
{
	int answer[2];
	*reporter = (struct reporter){.child = -1, .from = -1};
	if (pipe2(answer, O_CLOEXEC) != 0)
		return false;
	launch.output_fd = answer[1];
	reporter->child = launch_start(&launch);
	reporter->from = answer[0];
	close(answer[1]);
	return reporter->child > 0;
}

bool reporter_read(struct reporter *reporter, void *report, size_t size)
{
	return read_all(reporter->from, report, size);
}

bool reporter_end(struct reporter *reporter)
{
	struct usage usage;
	if (reporter->from >= 0)
		close(reporter->from);
	return reporter->child > 0 && launch_wait(reporter->child, &usage);
}

bool launch_report(struct launch launch, void *report, size_t size)
{
	struct reporter reporter;
	bool well = reporter_start(&reporter, launch) && reporter_read(&reporter, report, size);
	return reporter_end(&reporter) && well;
}

bool session_ask(struct session *session, const void *request, size_t request_size, void *reply,
		 size_t reply_size)
{
	/* The death of a worker must not kill the command. */
	signal(SIGPIPE, SIG_IGN);
	if (!session->broken)
		session->broken = !write_all(session->to, request, request_size) ||
				  !read_all(session->from, reply, reply_size);
	return !session->broken;
}

void session_close(struct session *session)
{
	struct usage ignored;
	if (session->to >= 0)
		close(session->to);
	if (session->from >= 0)
		close(session->from);
	if (session->child > 0)
		launch_wait(session->child, &ignored);
	session->child = session->to = session->from = -1;
}

bool session_receive(void *request, size_t size)
{
	return read_all(STDIN_FILENO, request, size);
}

bool session_reply(const void *reply, size_t size)
{
	return write_all(STDOUT_FILENO, reply, size);
}

struct cpu_time cpu_time(void)
{
	struct rusage used;
	getrusage(RUSAGE_SELF, &used);
	return (struct cpu_time){seconds_of(used.ru_utime), seconds_of(used.ru_stime)};
}

static double bytes_in_rollup(const char *name)
{
	/* No stdio: it would allocate, and this is called to measure allocation. */
	char text[4096];
	int fd = open("/proc/self/smaps_rollup", O_RDONLY | O_CLOEXEC);
	ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (fd >= 0)
		close(fd);
	if (length <= 0)
		return 0;
	text[length] = '\0';
	const char *field = strstr(text, name);
	return field ? 1024 * strtod(field + strlen(name), NULL) : 0;
}

void rest(void)
{
	for (unsigned i = 0; i < 200; i++) {
		usleep(10000);
		void *volatile object = malloc(100);
		free(object);
	}
}

double resident_bytes(void)
{
	return bytes_in_rollup("\nRss:");
}

double anonymous_bytes(void)
{
	return bytes_in_rollup("\nAnonymous:");
}

bool launch_make_folder(char folder[static PATH_MAX])
{
	const char *temporary = getenv("TMPDIR");
	snprintf(folder, PATH_MAX, "%.3000s/cpuslab-bench-XXXXXX",
		 temporary && *temporary ? temporary : "/tmp");
	if (mkdtemp(folder))
		return true;
	perror("cpuslab bench: temporary directory");
	return false;
}

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *where)
{
	(void)status;
	(void)kind;
	(void)where;
	return remove(path);
}

void launch_remove_folder(const char *folder)
{
	nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}
