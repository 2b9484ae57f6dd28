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
#include <sys/socket.h>
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

struct seen {
	struct target target;
	struct census census;
};

static void print_metrics(FILE *to, const char *name)
{
	static pid_t pids[PROCESSES];
	size_t found = target_find(name, pids, PROCESSES), count = 0;

	if (found > PROCESSES)
		found = PROCESSES;
	struct seen *seen = calloc(found + 1, sizeof(*seen));
	struct view *views = calloc(found + 1, sizeof(*views));

	for (size_t i = 0; seen && views && i < found; i++) {
		struct seen *one = &seen[count];

		*one = (struct seen){.census.cache_count = 0};
		if (target_attach(&one->target, pids[i]) != TARGET_READY)
			continue;
		if (census_take(&one->census, &one->target) == TARGET_READY) {
			(void)census_residents(&one->census, &one->target);
			view_select(&views[count], &one->census, &one->target, NULL, 0, false);
			count++;
		} else {
			census_free(&one->census);
			target_detach(&one->target);
		}
	}
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

static void serve(int connection, const char *name)
{
	static const char hint[] = "cpuslab export: see /metrics\n";
	char request[REQUEST], *text = NULL;
	size_t length = 0;

	if (!read_request(connection, request))
		return;
	bool head = asks_for(request, "HEAD", "/metrics");

	if (head || asks_for(request, "GET", "/metrics")) {
		FILE *memory = open_memstream(&text, &length);

		if (!memory)
			return;
		print_metrics(memory, name);
		fclose(memory);
		reply(connection, "200 OK", "text/plain; version=0.0.4; charset=utf-8", text, length, !head);
		free(text);
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
