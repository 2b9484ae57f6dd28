/* SPDX-License-Identifier: MIT */
/* fragment: a load of sessions ends, and one in thirty stays; each keeps a slab from going back.  Then a
 * line, and sleep. */
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
