/* SPDX-License-Identifier: MIT */
/*
 * fragment: a load of sessions ends, except for one in thirty, each of which keeps a slab alive.  Then prints
 * a line and sleeps.
 */
#include "check.h"

enum { SESSIONS = 200000, STAYS = 30 };

__attribute__((noinline)) static void *open_session(void)
{
	return memset(malloc(480), 1, 480);
}

int main(void)
{
	void **session = calloc(SESSIONS, sizeof(*session));

	CHECK(session);
	for (unsigned i = 0; i < SESSIONS; i++)
		session[i] = open_session();
	for (unsigned i = 0; i < SESSIONS; i++)
		if (i % STAYS)
			free(session[i]);
	malloc_trim(0);
	dprintf(STDOUT_FILENO, "up\n");
	for (;;)
		pause();
}
