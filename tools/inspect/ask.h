/* SPDX-License-Identifier: MIT */
/*
 * inspect/ask: asks another process for something through its mailbox (options/mailbox.h), and waits for the
 * answer.
 */
#ifndef CPUSLAB_TOOLS_ASK_H
#define CPUSLAB_TOOLS_ASK_H

#include "inspect/target.h"
#include "options/mailbox.h"

enum ask_outcome {
	ASK_ANSWERED,
	ASK_SILENT,    /* no answer in time, or this command was interrupted; the request was taken back */
	ASK_TAKEN,     /* the process has taken the request, and did not finish in time */
	ASK_ENDED,     /* the process has ended, or executes another program; target->trouble says which */
	ASK_UNABLE,    /* the mailbox cannot be written; errno says why */
	ASK_MAILBOXES, /* the process's library has none */
};

/* Waits at most `patience` seconds.  `result` and `token` get the answer. */
enum ask_outcome ask(struct target *target, const char *text, double patience, enum mailbox_result *result,
		     unsigned *token);

/* Takes back what ask() asks at present, if anything: for a command that ends at its bounds. */
void ask_take_back(void);

#endif
