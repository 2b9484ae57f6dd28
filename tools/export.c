/* SPDX-License-Identifier: MIT */
/* cpuslab export: serves the figures of all processes on cpuslab to a metrics server. */
#include "commands.h"
#include "export/server.h"
#include "inspect/bounds.h"
#include "inspect/view.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

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
 * A child reads each process within bounds (inspect/bounds.h), and hands on no more than this.  The total is
 * bounded as well: if several processes claim very much, those that claim most are left out, not those that
 * happen to come last.
 */
enum {
	CACHES_MOST = 1 << 14, /* per process */
	CELLS_MOST = 1 << 20,
	CACHES_ALL = 1 << 16
};

/* What is kept of a process; of its caches, only those with slabs. */
struct seen {
	struct target target;
	struct census census;
};

struct answer {
	struct seen *seen;
	size_t count, room, caches;
	bool whole; /* memory sufficed for all of it */
};

static bool is_moderate(const struct census *census)
{
	return census->cache_count <= CACHES_MOST && census->cache_count * census->vcpus <= CELLS_MOST;
}

/* Runs in a child. */
static size_t look_at(pid_t pid, void *told, size_t bytes)
{
	struct seen one = {.census.cache_count = 0};

	if (target_attach(&one.target, pid) != TARGET_READY ||
	    census_take(&one.census, &one.target) != TARGET_READY)
		return 0;
	if (!is_moderate(&one.census))
		bounds_no_room();
	(void)census_residents(&one.census, &one.target);

	struct census_cache *caches = (void *)((char *)told + sizeof(one));
	size_t kept = 0;

	for (size_t c = 0; c < one.census.cache_count; c++)
		if (one.census.caches[c].slabs && sizeof(one) + (kept + 1) * sizeof(*caches) <= bytes)
			caches[kept++] = one.census.caches[c];
	one.census.cache_count = kept;
	memcpy(told, &one, sizeof(one));
	return sizeof(one) + kept * sizeof(*caches);
}

static void leave_out_largest(struct answer *answer)
{
	size_t largest = 0;

	for (size_t i = 1; i < answer->count; i++)
		if (answer->seen[i].census.cache_count > answer->seen[largest].census.cache_count)
			largest = i;
	struct seen *one = &answer->seen[largest];

	fprintf(stderr, "cpuslab export: process %d has too much for one answer, left out\n",
		(int)one->target.pid);
	answer->caches -= one->census.cache_count;
	free(one->census.caches);
	answer->count--;
	memmove(one, one + 1, (answer->count - largest) * sizeof(*one));
}

static void take(void *context, size_t index, const void *told, size_t bytes)
{
	struct answer *answer = context;
	struct seen one;
	size_t length = bytes - sizeof(one);

	(void)index;
	memcpy(&one, told, sizeof(one));
	struct census *census = &one.census;

	census->cells = NULL;
	census->handles = NULL;
	census->caches = malloc(length + 1);
	if (answer->count == answer->room) {
		size_t room = answer->room ? 2 * answer->room : 64;
		struct seen *larger = reallocarray(answer->seen, room, sizeof(*larger));

		answer->room = larger ? room : answer->room;
		answer->seen = larger ? larger : answer->seen;
	}
	if (!census->caches || answer->count == answer->room) {
		free(census->caches);
		answer->whole = false;
		return;
	}
	memcpy(census->caches, (const char *)told + sizeof(one), length);
	answer->seen[answer->count++] = one;
	answer->caches += census->cache_count;
	while (answer->caches > CACHES_ALL)
		leave_out_largest(answer);
}

static bool print_answer(FILE *to, const struct answer *answer)
{
	struct view *views = calloc(answer->count + 1, sizeof(*views));
	size_t *order = calloc(CACHES_MOST, sizeof(*order));
	bool whole = views && order;

	/* Caches in the order in which they come, so that one array serves all processes. */
	for (size_t c = 0; whole && c < CACHES_MOST; c++)
		order[c] = c;
	for (size_t i = 0; whole && i < answer->count; i++)
		views[i] = (struct view){&answer->seen[i].census, &answer->seen[i].target, order,
					 answer->seen[i].census.cache_count};
	if (whole)
		view_print_prometheus(to, views, answer->count);
	free(order);
	free(views);
	return whole && !ferror(to);
}

/* Returns the text, or NULL when memory is short. */
static char *make_metrics(void *name, size_t *length)
{
	struct answer answer = {.whole = true};
	char *text = NULL;
	pid_t *pids;
	size_t count;

	if (!target_find(name, &pids, &count))
		return NULL;
	bool whole = bounds_survey(&(struct bounds_survey){.command = "cpuslab export",
							   .look = look_at,
							   .take = take,
							   .context = &answer,
							   .answer_bytes =
								   sizeof(struct seen) +
								   CACHES_MOST * sizeof(struct census_cache)},
				   pids, count) &&
		     answer.whole;
	FILE *memory = whole ? open_memstream(&text, length) : NULL;

	whole = memory && print_answer(memory, &answer);
	if (memory && fclose(memory) != 0)
		whole = false;
	for (size_t i = 0; i < answer.count; i++)
		free(answer.seen[i].census.caches);
	free(answer.seen);
	free(pids);
	if (whole)
		return text;
	free(text);
	return NULL;
}

/* ---- the command --------------------------------------------------------------------------------------- */

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
	if (bind(listener, (struct sockaddr *)&at, sizeof(at)) != 0 || listen(listener, SOMAXCONN) != 0 ||
	    getsockname(listener, (struct sockaddr *)&at, &length) != 0) {
		fprintf(stderr, "cpuslab export: %s: %s\n", text, strerror(errno));
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
	if (!target_proc_is_ours(argv[0]))
		return 1;
	int listener = listen_at(where);

	if (listener == -1)
		return wrong_value(argv[0], "--listen", where, "ADDRESS:PORT in numbers, as 127.0.0.1:9464");
	if (listener < 0)
		return 1;
	server_run(&(struct server){
		.command = argv[0], .listener = listener, .make = make_metrics, .context = argv[optind]});
	return 1;
}
