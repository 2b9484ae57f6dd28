/* SPDX-License-Identifier: MIT */
/*
 * messaging: after `perf bench sched messaging`, with allocated messages.
 *
 * In each group 20 senders write to each of 20 receivers over sockets.  Here all are threads of one process,
 * and the sockets carry the addresses of messages of 100 bytes, which the receiver reads and frees.
 */
#include "bench.h"

#include "launch.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MEMBERS = 20, MESSAGE = 100 };

struct group {
	unsigned loops;
	int write_end[MEMBERS];
};

struct member {
	pthread_t thread;
	struct group *group;
	int read_end; /* of a receiver */
	unsigned long sum;
};

/* ======== in the worker ======== */

static pthread_barrier_t all_ready;

static void *send_all(void *argument)
{
	struct member *m = argument;
	pthread_barrier_wait(&all_ready);
	for (unsigned loop = 0; loop < m->group->loops; loop++)
		for (unsigned receiver = 0; receiver < MEMBERS; receiver++) {
			char *message = malloc(MESSAGE);
			memset(message, (int)(loop & 0x7f), MESSAGE);
			if (write(m->group->write_end[receiver], &message, sizeof(message)) !=
			    sizeof(message))
				abort();
		}
	return NULL;
}

static void *receive_all(void *argument)
{
	struct member *m = argument;
	pthread_barrier_wait(&all_ready);
	for (unsigned i = 0; i < m->group->loops * MEMBERS; i++) {
		char *message;
		if (read(m->read_end, &message, sizeof(message)) != sizeof(message))
			abort();
		m->sum += (unsigned long)message[MESSAGE - 1];
		free(message);
	}
	return NULL;
}

int worker_messaging(int argc, char **argv)
{
	unsigned groups = argc > 2 ? (unsigned)strtoul(argv[1], NULL, 10) : 0;
	unsigned loops = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 0;
	struct rlimit files;
	if (groups == 0 || loops == 0)
		return 2;
	/* Two ends for each receiver. */
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	struct group *group = calloc(groups, sizeof(*group));
	struct member *members = calloc(groups * 2ul * MEMBERS, sizeof(*members));
	pthread_attr_t small_stacks;
	pthread_attr_init(&small_stacks);
	pthread_attr_setstacksize(&small_stacks, 128 << 10);
	pthread_barrier_init(&all_ready, NULL, groups * 2 * MEMBERS);
	unsigned long sum = 0, count = 0;
	for (unsigned g = 0; g < groups; g++) {
		group[g].loops = loops;
		for (unsigned i = 0; i < MEMBERS; i++) {
			int ends[2];
			/* Packets, so that a message is never read in part. */
			if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
				perror("cpuslab bench: messaging");
				return 1;
			}
			group[g].write_end[i] = ends[0];
			members[count++] = (struct member){.group = &group[g], .read_end = ends[1]};
		}
		for (unsigned i = 0; i < MEMBERS; i++)
			members[count++] = (struct member){.group = &group[g], .read_end = -1};
	}
	for (unsigned long i = 0; i < count; i++)
		if (pthread_create(&members[i].thread, &small_stacks,
				   members[i].read_end < 0 ? send_all : receive_all, &members[i]) != 0)
			abort();
	for (unsigned long i = 0; i < count; i++) {
		pthread_join(members[i].thread, NULL);
		sum += members[i].sum;
	}
	printf("%lu\n", sum);
	free(members);
	free(group);
	return 0;
}

/* ======== in the command ======== */

static bool measure_messaging(struct bench *bench, unsigned peer, bool warm_up, void *context)
{
	struct cell *cell = context;
	char *argv[] = {launch_program, "bench", "worker", "messaging", "10", "100", NULL};
	/* The original's size, only on request: 50 groups and 1000 messages take minutes. */
	if (strcmp(cell->parameter, "g50 l1000") == 0) {
		argv[4] = "50";
		argv[5] = "1000";
	}
	struct launch launch = {.argv = argv, .peer = &bench->peers.list[peer], .cpu = -1};
	return bench_measure_process(bench, peer, warm_up, cell, &launch);
}

bool group_messaging(struct bench *bench)
{
	/* --threads 2000 is the original's 50 groups of 40. */
	bool whole = bench->settings.threads == 2000;
	struct cell cell = {
		"messaging", "senders and receivers", whole ? "g50 l1000" : "g10 l100", "wall", "s",
		BETTER_LOWER};
	if (bench_asked_for(bench, cell.test))
		bench_rounds_of(bench, &cell, bench_rounds(bench, 7), measure_messaging, &cell);
	return true;
}
