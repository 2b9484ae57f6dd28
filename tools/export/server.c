/* SPDX-License-Identifier: MIT */
#include "export/server.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/queue.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
	CLIENTS = 16384,     /* connections at a time; each takes half a KiB */
	SPARE_FILES = 64,    /* descriptors left for reading processes */
	LINE = 256,          /* of the request line, kept; no path that is served needs more */
	HEAD_MOST = 1 << 16, /* bytes of a request's head */
	HELD_MOST = 1 << 28, /* bytes of answers that clients have not taken yet */
	EVENTS = 256,        /* and connections accepted before those that wait are looked at again */
	PAUSE = 100          /* milliseconds without accepting, where the system is short of something */
};

/* What a client does, and the milliseconds that it may take. */
enum state { ASKING, WAITING, SERVED_NEXT, TAKING, LEAVING, STATES };
static const int patience[STATES] = {
	[ASKING] = 5000,
	[TAKING] = 30000,
	/* Until it has seen the end of its answer: a reset could overtake that. */
	[LEAVING] = 1000,
};

/* A text that clients share. */
struct answer {
	char *text;
	size_t length;
	unsigned holders;
	TAILQ_ENTRY(answer) next;
};

struct client {
	TAILQ_ENTRY(client) next; /* of those in the same state, in the order in which they came to it */
	int64_t until;
	int connection;
	enum state state;
	bool without_body;
	/* While it asks: the first line, the bytes of the head, and the line ends in a row. */
	bool has_line;
	unsigned line_length, head_length, line_ends;
	char line[LINE];
	/* While it takes: the head of the answer, then its body. */
	char head[160];
	size_t sent, head_bytes, body_bytes;
	const char *body;
	struct answer *answer; /* NULL for a text that is not shared */
};

static struct client clients[CLIENTS];
static unsigned touched; /* so many of them have ever been used */
static TAILQ_HEAD(queue, client) queues[STATES], unused = TAILQ_HEAD_INITIALIZER(unused);
static TAILQ_HEAD(, answer) answers = TAILQ_HEAD_INITIALIZER(answers); /* the oldest first */
static size_t held_bytes;
static unsigned connected, connected_most;
static int events_of, finished[2]; /* epoll; a pipe on which a thread hands over the answer it made */
static bool is_making;
static int64_t now, paused_until;

static int64_t milliseconds(void)
{
	struct timespec clock;

	clock_gettime(CLOCK_MONOTONIC, &clock);
	return (int64_t)clock.tv_sec * 1000 + clock.tv_nsec / 1000000;
}

/* ---- states -------------------------------------------------------------------------------------------- */

static void enter(struct client *client, enum state state)
{
	static const uint32_t events[STATES] = {[ASKING] = EPOLLIN, [TAKING] = EPOLLOUT, [LEAVING] = EPOLLIN};
	struct epoll_event event = {.events = events[state], .data.ptr = client};

	TAILQ_REMOVE(&queues[client->state], client, next);
	client->state = state;
	client->until = now + patience[state];
	TAILQ_INSERT_TAIL(&queues[state], client, next);
	epoll_ctl(events_of, EPOLL_CTL_MOD, client->connection, &event);
}

static void let_go(struct answer *answer)
{
	if (!answer || --answer->holders)
		return;
	TAILQ_REMOVE(&answers, answer, next);
	held_bytes -= answer->length;
	free(answer->text);
	free(answer);
}

static void hang_up(struct client *client)
{
	/*
	 * A child that reads processes may have a copy of the descriptor: with close() alone the connection
	 * would stay, and so would its events.
	 */
	epoll_ctl(events_of, EPOLL_CTL_DEL, client->connection, NULL);
	shutdown(client->connection, SHUT_RDWR);
	close(client->connection);
	let_go(client->answer);
	TAILQ_REMOVE(&queues[client->state], client, next);
	TAILQ_INSERT_HEAD(&unused, client, next);
	connected--;
	paused_until = 0;
}

/* ---- answers ------------------------------------------------------------------------------------------- */

static void reply(struct client *client, const char *status, const char *type, const char *body,
		  size_t length)
{
	client->head_bytes = (size_t)snprintf(client->head, sizeof(client->head),
					      "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
					      "Connection: close\r\n\r\n",
					      status, type, length);
	client->body = body;
	client->body_bytes = client->without_body ? 0 : length;
	client->sent = 0;
	enter(client, TAKING);
}

static void reply_text(struct client *client, const char *status, const char *text)
{
	reply(client, status, "text/plain", text, strlen(text));
}

static void *make_answer(void *context)
{
	const struct server *server = context;
	struct answer *answer = calloc(1, sizeof(*answer));

	if (answer)
		answer->text = server->make(server->context, &answer->length);
	if (answer && !answer->text) {
		free(answer);
		answer = NULL;
	}
	while (write(finished[1], &answer, sizeof(answer)) < 0 && errno == EINTR)
		;
	return NULL;
}

/* Hands an answer to all that were to be served next; NULL: none could be made. */
static void hand_out(struct answer *answer)
{
	struct client *client;

	is_making = false;
	if (answer) {
		TAILQ_INSERT_TAIL(&answers, answer, next);
		held_bytes += answer->length;
		answer->holders = 1; /* until all have it */
	}
	while ((client = TAILQ_FIRST(&queues[SERVED_NEXT]))) {
		if (!answer) {
			reply_text(client, "500 Internal Server Error",
				   "cpuslab export: no answer could be made\n");
			continue;
		}
		client->answer = answer;
		answer->holders++;
		reply(client, "200 OK", "text/plain; version=0.0.4; charset=utf-8", answer->text,
		      answer->length);
	}
	let_go(answer);
}

/* Slow readers of old answers give way to the memory of new ones. */
static void bound_held(void)
{
	struct client *client, *after;

	for (client = TAILQ_FIRST(&queues[TAKING]); client && held_bytes > HELD_MOST; client = after) {
		after = TAILQ_NEXT(client, next);
		if (client->answer)
			hang_up(client);
	}
}

/* Starts to make an answer for all that wait, if none is being made. */
static void begin_answer(const struct server *server)
{
	struct client *client;
	pthread_t thread;

	if (is_making || TAILQ_EMPTY(&queues[WAITING]))
		return;
	bound_held();
	while ((client = TAILQ_FIRST(&queues[WAITING])))
		enter(client, SERVED_NEXT);
	is_making = true;
	if (pthread_create(&thread, NULL, make_answer, (void *)server) == 0)
		pthread_detach(thread);
	else
		hand_out(NULL);
}

static void take_finished(void)
{
	struct answer *answer;

	if (read(finished[0], &answer, sizeof(answer)) == sizeof(answer))
		hand_out(answer);
}

/* ---- requests ------------------------------------------------------------------------------------------ */

static bool asks_for(const char *target, const char *path)
{
	size_t length = strlen(path);

	return strncmp(target, path, length) == 0 && strchr(" ?", target[length]);
}

static void answer_request(struct client *client)
{
	static const char hint[] = "cpuslab export: see /metrics\n";
	const char *target = strchr(client->line, ' ');
	bool head = strncmp(client->line, "HEAD ", 5) == 0;

	client->without_body = head;
	if (!target || target == client->line)
		reply_text(client, "400 Bad Request", hint);
	else if (!head && strncmp(client->line, "GET ", 4) != 0)
		reply_text(client, "501 Not Implemented", hint);
	else if (asks_for(target + 1, "/metrics"))
		enter(client, WAITING);
	else
		reply_text(client, asks_for(target + 1, "/") ? "200 OK" : "404 Not Found", hint);
}

/* Takes a byte of the head; returns whether it ends here, with an empty line. */
static bool take_byte(struct client *client, char byte)
{
	client->head_length++;
	if (byte == '\r')
		return false;
	if (byte != '\n') {
		client->line_ends = 0;
		if (!client->has_line && client->line_length < LINE - 1)
			client->line[client->line_length++] = byte;
		return false;
	}
	/* Empty lines before the first one count for nothing: RFC 9112, 2.2. */
	client->has_line = client->line_length;
	return client->has_line && ++client->line_ends == 2;
}

static bool take_piece(struct client *client, const char *piece, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if (take_byte(client, piece[i]))
			return true;
	return false;
}

static void hear(struct client *client)
{
	char piece[4096];
	ssize_t got = recv(client->connection, piece, sizeof(piece), MSG_DONTWAIT);

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (got <= 0)
		hang_up(client);
	else if (client->state == LEAVING)
		return;
	else if (take_piece(client, piece, (size_t)got))
		answer_request(client);
	else if (client->head_length > HEAD_MOST)
		reply_text(client, "431 Request Header Fields Too Large",
			   "cpuslab export: the request's head is too large\n");
}

/* Sends as much as the client takes. */
static void tell(struct client *client)
{
	while (client->sent < client->head_bytes + client->body_bytes) {
		bool head = client->sent < client->head_bytes;
		const char *from = head ? client->head + client->sent
					: client->body + (client->sent - client->head_bytes);
		size_t left = client->head_bytes + (head ? 0 : client->body_bytes) - client->sent;
		ssize_t sent =
			send(client->connection, from, left,
			     MSG_NOSIGNAL | MSG_DONTWAIT | (head && client->body_bytes ? MSG_MORE : 0));

		if (sent < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (sent <= 0) {
			hang_up(client);
			return;
		}
		client->sent += (size_t)sent;
	}
	let_go(client->answer);
	client->answer = NULL;
	shutdown(client->connection, SHUT_WR);
	enter(client, LEAVING);
}

/* ---- connections --------------------------------------------------------------------------------------- */

/*
 * Closes the connection that is missed least: one that has its answer, else the one that has asked or taken
 * longest.  If all wait for an answer, none is accepted for a while.
 */
static void make_room(void)
{
	struct client *client = TAILQ_FIRST(&queues[LEAVING]);

	if (!client)
		client = TAILQ_FIRST(&queues[ASKING]);
	if (!client)
		client = TAILQ_FIRST(&queues[TAKING]);
	if (client)
		hang_up(client);
	else
		paused_until = now + PAUSE;
}

static void welcome(int connection)
{
	struct client *client = TAILQ_FIRST(&unused);
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = client ? client : &clients[touched]};

	if (epoll_ctl(events_of, EPOLL_CTL_ADD, connection, &event) != 0) {
		close(connection);
		return;
	}
	if (client)
		TAILQ_REMOVE(&unused, client, next);
	else
		client = &clients[touched++];
	*client = (struct client){.connection = connection, .state = ASKING, .until = now + patience[ASKING]};
	TAILQ_INSERT_TAIL(&queues[ASKING], client, next);
	connected++;
}

/* Returns false when the listener itself is at fault: other errors are those of one connection. */
static bool accept_some(const struct server *server)
{
	for (unsigned i = 0; i < EVENTS && now >= paused_until; i++) {
		if (connected >= connected_most) {
			make_room();
			continue;
		}
		int connection = accept4(server->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (connection >= 0)
			welcome(connection);
		else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
			paused_until = now + PAUSE;
		else if (errno == EBADF || errno == EINVAL || errno == ENOTSOCK)
			return false;
		else
			return true;
	}
	return true;
}

/* ---- the loop ------------------------------------------------------------------------------------------ */

static void expire(void)
{
	struct client *client;

	for (enum state state = ASKING; state < STATES; state++)
		while (patience[state] && (client = TAILQ_FIRST(&queues[state])) && client->until <= now)
			hang_up(client);
}

/* Returns the milliseconds until something is due, or -1. */
static int time_left(void)
{
	int64_t next = paused_until > now ? paused_until : INT64_MAX;

	for (enum state state = ASKING; state < STATES; state++) {
		const struct client *client = TAILQ_FIRST(&queues[state]);

		if (patience[state] && client && client->until < next)
			next = client->until;
	}
	return next == INT64_MAX ? -1 : next > now ? (int)(next - now) : 0;
}

/* The listener and the pipe are watched by their addresses here. */
static bool watch(const int *file, uint32_t events, int operation)
{
	struct epoll_event event = {.events = events, .data.ptr = (void *)file};

	return epoll_ctl(events_of, operation, *file, &event) == 0;
}

static void serve_client(struct client *client, uint32_t events)
{
	if (client->state == ASKING || client->state == LEAVING)
		hear(client);
	else if (events & (EPOLLERR | EPOLLHUP))
		hang_up(client);
	else if (client->state == TAKING)
		tell(client);
}

/* As many connections as the system lets this process have, and the table has places for. */
static void find_most(void)
{
	struct rlimit files = {.rlim_cur = 1024};

	if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
		rlim_t before = files.rlim_cur, wanted = CLIENTS + SPARE_FILES;

		files.rlim_cur = files.rlim_max < wanted ? files.rlim_max : wanted;
		if (files.rlim_cur < before || setrlimit(RLIMIT_NOFILE, &files) != 0)
			files.rlim_cur = before;
	}
	connected_most = files.rlim_cur > CLIENTS + SPARE_FILES ? CLIENTS
			 : files.rlim_cur > 2 * SPARE_FILES     ? (unsigned)files.rlim_cur - SPARE_FILES
								: (unsigned)files.rlim_cur / 2;
}

static bool prepare(const struct server *server)
{
	for (enum state state = ASKING; state < STATES; state++)
		TAILQ_INIT(&queues[state]);
	find_most();
	events_of = epoll_create1(EPOLL_CLOEXEC);
	return events_of >= 0 && pipe2(finished, O_CLOEXEC) == 0 &&
	       fcntl(server->listener, F_SETFL, O_NONBLOCK) == 0 &&
	       watch(&finished[0], EPOLLIN, EPOLL_CTL_ADD) &&
	       watch(&server->listener, EPOLLIN, EPOLL_CTL_ADD);
}

void server_run(const struct server *server)
{
	struct epoll_event events[EVENTS];
	bool good = prepare(server), paused = false;

	while (good) {
		now = milliseconds();
		if (paused != (now < paused_until)) {
			paused = !paused;
			watch(&server->listener, paused ? 0 : EPOLLIN, EPOLL_CTL_MOD);
		}
		int count = epoll_wait(events_of, events, EVENTS, time_left());

		now = milliseconds();
		bool waiting = false;

		/* Clients first: one that is hung up is not met again in the same round. */
		for (int i = 0; i < count; i++)
			if (events[i].data.ptr == &finished[0])
				take_finished();
			else if (events[i].data.ptr == &server->listener)
				waiting = true;
			else
				serve_client(events[i].data.ptr, events[i].events);
		expire();
		if (waiting)
			good = accept_some(server);
		begin_answer(server);
	}
	perror(server->command);
}
