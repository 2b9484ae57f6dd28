/* SPDX-License-Identifier: MIT */
/* cpuslab set and cpuslab trim: change a running process's options, and give back what it has free. */
#include "commands.h"
#include "inspect/ask.h"
#include "inspect/bounds.h"
#include "inspect/settings.h"
#include "numbers.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

enum { UNANSWERED = 3 }; /* exit status */

static const struct option options_taken[] = {
	{"wait", required_argument, NULL, 'w'},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

static int usage_of_set(FILE *to)
{
	fputs("usage: cpuslab set [--wait=SECONDS] PID|NAME KEY:VALUE,...\n"
	      "Changes options of a running process: all of these, or none.  `cpuslab options` says which "
	      "can\n"
	      "change, and `cpuslab info --options PID` which values are in force.\n\n"
	      "  -w, --wait=SECONDS  how long to wait for the process's answer (5)\n\n"
	      "Exit status: 0, 1 when it could not be done, 3 when the process did not answer; then nothing\n"
	      "was changed, nor will it be.\n",
	      to);
	return to == stdout ? 0 : 2;
}

static int usage_of_trim(FILE *to)
{
	fputs("usage: cpuslab trim [--wait=SECONDS] PID|NAME\n"
	      "Makes a running process return all of its free memory to the system, as malloc_trim(0) "
	      "would.\n\n"
	      "  -w, --wait=SECONDS  how long to wait for the process's answer (5)\n\n"
	      "Exit status: 0, 1 when it could not be done, 3 when the process did not answer; then nothing\n"
	      "is done, nor will it be.\n",
	      to);
	return to == stdout ? 0 : 2;
}

/* The key:value with a number, counted from 0. */
static void say_refused(const char *command, const char *text, unsigned token, const char *why)
{
	while (token-- && strchr(text, ','))
		text = strchr(text, ',') + 1;
	fprintf(stderr, "%s: '%.*s' %s; nothing was changed\n", command, (int)strcspn(text, ","), text, why);
}

/* Why a process may not answer. */
static const char *why_silent(pid_t pid)
{
	char state = target_state(pid);

	return state == 'T' || state == 't'
		       ? "it is stopped"
		       : "it allocates and frees nothing, or only what its magazines have";
}

/* Asks, and says what went wrong; returns the exit status. */
static int ask_for(struct target *target, const char *command, const char *text, double patience)
{
	enum mailbox_result result;
	unsigned token;

	switch (ask(target, text, patience, &result, &token)) {
	case ASK_ANSWERED:
		if (result == MAILBOX_DONE)
			return 0;
		say_refused(command, text, token,
			    result == MAILBOX_FIXED     ? "is fixed when a program starts"
			    : result == MAILBOX_INVALID ? "is no option, or not with that value"
							: "did not arrive whole");
		return 1;
	case ASK_SILENT:
		fprintf(stderr, "%s: process %d (%s) did not answer within %g s: %s; nothing was done\n",
			command, (int)target->pid, target->name, patience, why_silent(target->pid));
		return UNANSWERED;
	case ASK_TAKEN:
		fprintf(stderr, "%s: process %d (%s) took the request, and has not answered yet\n", command,
			(int)target->pid, target->name);
		return UNANSWERED;
	case ASK_ENDED:
		fprintf(stderr, "%s: process %d (%s): %s\n", command, (int)target->pid, target->name,
			target->trouble);
		return 1;
	case ASK_UNABLE:
		fprintf(stderr, "%s: process %d (%s): its mailbox cannot be written: %s\n", command,
			(int)target->pid, target->name, strerror(errno));
		return 1;
	case ASK_MAILBOXES:
		fprintf(stderr,
			"%s: process %d (%s): its cpuslab %.31s takes no requests: use a newer library\n",
			command, (int)target->pid, target->name, target->root.release);
		return 1;
	}
	return 1;
}

/* Reads the command line up to the process's name; returns -1, or the exit status. */
static int begin(int argc, char **argv, int arguments, int (*usage)(FILE *), double *patience)
{
	*patience = 5;
	for (int option; (option = getopt_long(argc, argv, "w:h", options_taken, NULL)) != -1;)
		switch (option) {
		case 'w':
			if (!parse_seconds(optarg, patience, 0, 1e6))
				return wrong_value(argv[0], "--wait", optarg, "seconds from 0 to 1000000");
			break;
		case 'h':
			return usage(stdout);
		default:
			return usage(stderr);
		}
	return argc - optind == arguments ? -1 : usage(stderr);
}

int command_set(int argc, char **argv)
{
	struct target target;
	double patience;
	int status = begin(argc, argv, 2, usage_of_set, &patience);

	if (status >= 0)
		return status;
	const char *text = argv[optind + 1];

	/* The process would take "trim" as well, for which there is another command. */
	if (!strchr(text, ':'))
		return wrong_value(argv[0], "PID", text, "key:value,... after it");
	if (strlen(text) > MAILBOX_TEXT) {
		fprintf(stderr, "%s: more than %d bytes of options at once\n", argv[0], MAILBOX_TEXT);
		return 2;
	}
	bounds_begin(argv[0], ask_take_back);
	if (!target_open(&target, argv[0], argv[optind]))
		return 1;
	status = ask_for(&target, argv[0], text, patience);
	target_detach(&target);
	return status;
}

int command_trim(int argc, char **argv)
{
	struct target target;
	double patience;
	uint64_t before = 0, after = 0;
	int status = begin(argc, argv, 1, usage_of_trim, &patience);

	if (status >= 0)
		return status;
	bounds_begin(argv[0], ask_take_back);
	if (!target_open(&target, argv[0], argv[optind]))
		return 1;
	(void)target_variable(&target, &target.at.page_purged, &before);
	status = ask_for(&target, argv[0], "trim", patience);
	if (status == 0 && target_variable(&target, &target.at.page_purged, &after))
		printf("%llu KiB of the heap went back to the system\n",
		       (unsigned long long)(after - before) * 4);
	target_detach(&target);
	return status;
}
