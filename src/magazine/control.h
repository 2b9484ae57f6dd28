/* SPDX-License-Identifier: MIT */
/*
 * magazine/control: changes what can change while the program runs, for cpuslab_ctl() and for requests from
 * outside (options/mailbox.h), which slow paths obey.
 *
 * No lock: a request is taken by one exchange, and each option changes by one store.  A forked child may find
 * a request that its parent took and has not obeyed: it then is the parent's alone.
 */
#ifndef CPUSLAB_MAGAZINE_CONTROL_H
#define CPUSLAB_MAGAZINE_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

#include "arch/arch.h"
#include "options/mailbox.h"

extern ARCH_INTERNAL struct mailbox control_mailbox;
extern ARCH_INTERNAL struct mailbox_letter control_letter;

/* Whether somebody asks for something. */
static inline bool control_is_due(void)
{
	return __builtin_expect(__atomic_load_n(&control_mailbox.wanted, __ATOMIC_RELAXED) !=
					__atomic_load_n(&control_mailbox.seen, __ATOMIC_RELAXED),
				0);
}

/* A request, obeyed but for `trims`: all that is free is to go back before the answer. */
struct control_request {
	uint32_t ticket;
	enum mailbox_result result;
	unsigned token;
	bool trims;
};

/* Takes the next request and obeys it; returns false if there is none, or another thread took it. */
bool control_take(struct control_request *request);
void control_answer(const struct control_request *request);

/*
 * Changes an option while the program runs.  Returns 0, EINVAL or EPERM as options_change().  A heap profile
 * starts with the next slow path, and what has become overdue goes back from then on.
 */
int magazine_control(const char *name, const char *value);

void control_show(void (*show)(const char *name, uintptr_t value, size_t size));

#endif
