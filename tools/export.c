/* SPDX-License-Identifier: MIT */
/* cpuslab export: the figures of all processes on cpuslab, for a metrics server to fetch. */
#include "commands.h"
#include "inspect/view.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PROCESSES = 1024, REQUEST = 4096, PATIENCE = 5000 };

static const struct option options[] = {
	{"listen", required_argument, NULL, 'l'},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

static int usage(FILE *to)
{
	fputs("usage: cpuslab export --listen ADDRESS:PORT [NAME]\n"
	      "Serves http://ADDRESS:PORT/metrics in Prometheus' text exposition format, for all processes "
	      "on\n"
	      "cpuslab that may be read, or those called NAME.  ADDRESS is a number, as 127.0.0.1; port 0 "
	      "takes\n"
	      "a free one.  There is no access control: whoever can connect can read.\n",
	      to);
	return to == stdout ? 0 : 2;
}

/* ---- what is served ------------------------------------------------------------------------------------ */

/*
 * What stands in another process is its own to make up: it may claim more than there is memory for, or make
 * who reads it wait for ever.  So each answer is made by a child with bounds, which alone ends by that, and
 * the next one leaves out what the last was reading then.
 */
enum {
	ANSWER_BYTES = 1 << 30, /* of address space, for all processes together */
	SECONDS_EACH = 5,
	CACHES_MOST = 1 << 14, /* of a process: what is served has a bound as well */
	CELLS_MOST = 1 << 20
};

/* What a child tells its parent. */
static struct progress {
	pid_t reading; /* 0: none */
	bool made;
} *progress;

/* Processes that ended the last children. */
struct outcasts {
	size_t count;
	pid_t pids[PROCESSES];
};

static bool is_outcast(const struct outcasts *outcasts, pid_t pid)
{
	for (size_t i = 0; i < outcasts->count; i++)
		if (outcasts->pids[i] == pid)
			return true;
	return false;
}

struct seen {
	struct target target;
	struct census census;
};

static bool read_process(struct seen *one, pid_t pid)
{
	*one = (struct seen){.census.cache_count = 0};
	if (target_attach(&one->target, pid) != TARGET_READY)
		return false;
	if (census_take(&one->census, &one->target) == TARGET_READY &&
	    one->census.cache_count <= CACHES_MOST &&
	    one->census.cache_count * one->census.vcpus <= CELLS_MOST) {
		(void)census_residents(&one->census, &one->target);
		return true;
	}
	census_free(&one->census);
	target_detach(&one->target);
	return false;
}

static void print_metrics(FILE *to, const char *name, const struct outcasts *outcasts)
{
	static pid_t pids[PROCESSES];
	size_t found = target_find(name, pids, PROCESSES), count = 0;

	if (found > PROCESSES)
		found = PROCESSES;
	struct seen *seen = calloc(found + 1, sizeof(*seen));
	struct view *views = calloc(found + 1, sizeof(*views));

	for (size_t i = 0; seen && views && i < found; i++) {
		if (is_outcast(outcasts, pids[i]))
			continue;
		progress->reading = pids[i];
		alarm(SECONDS_EACH);
		if (read_process(&seen[count], pids[i])) {
			view_select(&views[count], &seen[count].census, &seen[count].target, NULL, 0, false);
			count++;
		}
	}
	alarm(0);
	progress->reading = 0;
	if (seen && views)
		view_print_prometheus(to, views, count);
	for (size_t i = 0; i < count; i++) {
		free(views[i].order);
		census_free(&seen[i].census);
		target_detach(&seen[i].target);
	}
	free(views);
	free(seen);
}

/* ---- HTTP ---------------------------------------------------------------------------------------------- */

/*
 * One client at a time: none may keep the others waiting for long.  It has PATIENCE milliseconds to ask, and
 * as many to take the reply, however it shares them out.
 */
static int64_t milliseconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Waits until the client has sent or taken something; false when its time is over. */
static bool wait_for(int connection, short events, int64_t until)
{
	struct pollfd client = {.fd = connection, .events = events};
	int64_t left = until - milliseconds();

	return left > 0 && poll(&client, 1, (int)left) > 0;
}

static bool send_all(int connection, const char *text, size_t length, int64_t until)
{
	while (length) {
		if (!wait_for(connection, POLLOUT, until))
			return false;
		ssize_t sent = send(connection, text, length, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (sent <= 0)
			return false;
		text += sent;
		length -= (size_t)sent;
	}
	return true;
}

static void reply(int connection, const char *status, const char *type, const char *body, size_t length,
		  bool with_body)
{
	int64_t until = milliseconds() + PATIENCE;
	char head[256];
	int head_length = snprintf(head, sizeof(head),
				   "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
				   "Connection: close\r\n\r\n",
				   status, type, length);

	if (send_all(connection, head, (size_t)head_length, until) && with_body)
		send_all(connection, body, length, until);
}

/* Up to the empty line that ends the head; what a client sends behind it is of no interest. */
static bool read_request(int connection, char request[static REQUEST])
{
	int64_t until = milliseconds() + PATIENCE;
	size_t length = 0;

	while (length < REQUEST - 1) {
		if (!wait_for(connection, POLLIN, until))
			return false;
		ssize_t got = recv(connection, request + length, REQUEST - 1 - length, MSG_DONTWAIT);

		if (got <= 0)
			return false;
		length += (size_t)got;
		request[length] = '\0';
		if (strstr(request, "\r\n\r\n") || strstr(request, "\n\n"))
			return true;
	}
	return false;
}

static bool asks_for(const char *request, const char *method, const char *path)
{
	size_t first = strlen(method), second = strlen(path);

	return strncmp(request, method, first) == 0 && request[first] == ' ' &&
	       strncmp(request + first + 1, path, second) == 0 && strchr(" ?", request[first + 1 + second]);
}

/* In a child. */
static bool answer(int connection, const char *name, const struct outcasts *outcasts, bool with_body)
{
	const struct rlimit bytes = {ANSWER_BYTES, ANSWER_BYTES};
	char *text = NULL;
	size_t length = 0;

	signal(SIGALRM, SIG_DFL);
	if (setrlimit(RLIMIT_AS, &bytes) != 0)
		return false;
	FILE *memory = open_memstream(&text, &length);

	if (!memory)
		return false;
	print_metrics(memory, name, outcasts);
	bool whole = !ferror(memory);

	if (fclose(memory) != 0 || !whole)
		return false;
	progress->made = true;
	reply(connection, "200 OK", "text/plain; version=0.0.4; charset=utf-8", text, length, with_body);
	return true;
}

/* False where the next child may do better. */
static bool try_to_answer(int connection, const char *name, struct outcasts *outcasts, bool with_body)
{
	static const char sorry[] = "cpuslab export: no answer could be made\n";
	int status = 0;

	*progress = (struct progress){0};
	pid_t child = fork();

	if (child == 0)
		_exit(!answer(connection, name, outcasts, with_body));
	while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	if (child > 0 && (status == 0 || progress->made))
		return true;
	if (child < 0 || !progress->reading || outcasts->count == PROCESSES) {
		reply(connection, "500 Internal Server Error", "text/plain", sorry, sizeof(sorry) - 1,
		      with_body);
		return true;
	}
	fprintf(stderr, "cpuslab export: process %d cannot be read within bounds, left out\n",
		(int)progress->reading);
	outcasts->pids[outcasts->count++] = progress->reading;
	return false;
}

static void serve(int connection, const char *name)
{
	static const char hint[] = "cpuslab export: see /metrics\n";
	static struct outcasts outcasts;
	char request[REQUEST];

	if (!read_request(connection, request))
		return;
	bool head = asks_for(request, "HEAD", "/metrics");

	if (head || asks_for(request, "GET", "/metrics")) {
		outcasts.count = 0;
		while (!try_to_answer(connection, name, &outcasts, !head))
			;
	} else if (asks_for(request, "GET", "/")) {
		reply(connection, "200 OK", "text/plain", hint, sizeof(hint) - 1, true);
	} else {
		reply(connection, "404 Not Found", "text/plain", hint, sizeof(hint) - 1, true);
	}
}

static int listen_at(const char *text)
{
	char address[64];
	const char *colon = strrchr(text, ':');
	struct sockaddr_in at = {.sin_family = AF_INET};
	socklen_t length = sizeof(at);
	char *end;
	int on = 1;

	if (!colon || (size_t)(colon - text) >= sizeof(address))
		return -1;
	memcpy(address, text, (size_t)(colon - text));
	address[colon - text] = '\0';
	unsigned long port = strtoul(colon + 1, &end, 10);

	if (inet_pton(AF_INET, address, &at.sin_addr) != 1 || *end || end == colon + 1 || port > UINT16_MAX)
		return -1;
	at.sin_port = htons((uint16_t)port);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (listener < 0)
		return perror("cpuslab export"), -2;
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(listener, (struct sockaddr *)&at, sizeof(at)) != 0 || listen(listener, 16) != 0 ||
	    getsockname(listener, (struct sockaddr *)&at, &length) != 0) {
		perror("cpuslab export");
		close(listener);
		return -2;
	}
	printf("http://%s:%u/metrics\n", address, ntohs(at.sin_port));
	fflush(stdout);
	return listener;
}

int command_export(int argc, char **argv)
{
	const char *where = NULL;

	for (int option; (option = getopt_long(argc, argv, "l:h", options, NULL)) != -1;)
		switch (option) {
		case 'l':
			where = optarg;
			break;
		case 'h':
			return usage(stdout);
		default:
			return usage(stderr);
		}
	if (!where || argc - optind > 1)
		return usage(stderr);
	int listener = listen_at(where);

	if (listener == -1)
		return wrong_value(argv[0], "--listen", where, "ADDRESS:PORT in numbers, as 127.0.0.1:9464");
	if (listener < 0)
		return 1;
	progress = mmap(NULL, sizeof(*progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (progress == MAP_FAILED) {
		perror("cpuslab export");
		return 1;
	}
	signal(SIGCHLD, SIG_DFL);
	for (;;) {
		int connection = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

		if (connection >= 0) {
			serve(connection, argv[optind]);
			close(connection);
		} else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) {
			poll(NULL, 0, 100);
		} else if (errno != EINTR && errno != ECONNABORTED) {
			perror("cpuslab export");
			return 1;
		}
	}
}
