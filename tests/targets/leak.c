/* SPDX-License-Identifier: MIT */
/*
 * leak [SECONDS]: a server that answers requests and forgets one buffer in ten.  What leaks, what is kept for
 * a while and what is freed at once come from three functions, which a profile must tell apart: two of them
 * alternate in each request.
 */
#include "check.h"

#include <time.h>

enum { KEPT = 2000, PARSED = 8 };

static void *kept[KEPT];
static void *leaked; /* a list, so that nothing is optimised away */

__attribute__((noinline)) static void *parse_request(uint64_t *random)
{
	return malloc(64 + check_below(random, 1000));
}

__attribute__((noinline)) static void remember_session(uint64_t *random)
{
	size_t i = check_below(random, KEPT);

	free(kept[i]);
	kept[i] = malloc(500);
}

__attribute__((noinline)) static void append_to_log(void)
{
	void **entry = malloc(900);

	*entry = leaked;
	leaked = entry;
}

__attribute__((noinline)) static void handle_request(uint64_t *random, unsigned number)
{
	void *parsed[PARSED];

	for (unsigned i = 0; i < PARSED; i++)
		parsed[i] = parse_request(random);
	remember_session(random);
	if (number % 10 == 0)
		append_to_log();
	for (unsigned i = 0; i < PARSED; i++)
		free(parsed[i]);
}

int main(int argc, char **argv)
{
	uint64_t random = 88172645463325252u;
	unsigned seconds = argc > 1 ? (unsigned)atoi(argv[1]) : 600;
	time_t end = time(NULL) + seconds;

	dprintf(STDOUT_FILENO, "up\n");
	for (unsigned number = 0; time(NULL) < end; number++) {
		handle_request(&random, number);
		if (number % 100 == 0)
			usleep(1000);
	}
	return 0;
}
