/* SPDX-License-Identifier: MIT */
/*
 * export/server: answers GET /metrics over HTTP to any number of clients at once.
 *
 * One loop serves all connections and never waits for a single one.  Answers are made in a thread of their
 * own, one at a time, as reading processes can take long; clients that ask meanwhile share the next answer,
 * so no figure is older than the request.  Each connection serves one request and is then closed.
 *
 * A client has limited time to send its request and to take its answer.  Where connections or memory run
 * out, those are closed that have waited longest without a whole request, or that hold the oldest answer.
 */
#ifndef CPUSLAB_TOOLS_SERVER_H
#define CPUSLAB_TOOLS_SERVER_H

#include <stddef.h>

struct server {
	const char *command; /* begins messages */
	int listener;
	/* Returns an answer in memory from malloc, or NULL if none could be made.  Called in a thread. */
	char *(*make)(void *context, size_t *length);
	void *context;
};

/* Returns only when the listener fails, with a message on standard error. */
void server_run(const struct server *server);

#endif
