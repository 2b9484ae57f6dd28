/* SPDX-License-Identifier: MIT */
#include "inspect/ask.h"
#include "inspect/bounds.h"
#include "inspect/wait.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum {
	POLL = 1000,         /* microseconds between two looks at the mailbox */
	POLLS_PER_CHECK = 50 /* looks between two at whether the process is still the same */
};
static const double AT_WORK = 10; /* seconds more for a process that has taken the request */
static const double OTHERS = 1; /* seconds that another's request may wait before it counts as left behind */

/* What is asked at present. */
static struct {
	const struct target *target;
	uint32_t ticket; /* 0: nothing */
} asking;

static bool write_to(const struct target *target, uint64_t address, const void *bytes, size_t count)
{
	struct iovec local = {(void *)(uintptr_t)bytes, count};
	struct iovec remote = {(void *)(uintptr_t)address, count};

	return process_vm_writev(target->thread, &local, 1, &remote, 1, 0) == (ssize_t)count;
}

/* What was read of a mailbox; the answer last, so that it is that of the request seen, or a later one's. */
struct seen {
	uint32_t wanted, seen;
	uint64_t answer;
};

static bool read_mailbox(const struct target *target, struct seen *mailbox)
{
	struct mailbox words;

	if (!target_read(target, target->at.mailbox.value, &words, sizeof(words)))
		return false;
	mailbox->wanted = words.wanted;
	mailbox->seen = words.seen;
	return target_read(target, target->at.mailbox_letter.value + offsetof(struct mailbox_letter, answer),
			   &mailbox->answer, sizeof(mailbox->answer));
}

static uint32_t new_ticket(void)
{
	uint32_t ticket = 0;

	while (!ticket)
		if (getrandom(&ticket, sizeof(ticket), 0) != sizeof(ticket))
			ticket = (uint32_t)getpid() ^ (uint32_t)(wait_now() * 1e9);
	return ticket;
}

/* The letter first, and by a call of its own: the process looks at it once it sees the ticket. */
static bool post(const struct target *target, const char *text)
{
	struct mailbox_letter letter = {.length = (uint32_t)strlen(text)};
	uint32_t ticket = new_ticket();

	memcpy(letter.text, text, letter.length);
	letter.check = mailbox_check(ticket, &letter);
	asking.target = target;
	asking.ticket = ticket;
	return write_to(target, target->at.mailbox_letter.value + offsetof(struct mailbox_letter, check),
			&letter.check, sizeof(letter) - offsetof(struct mailbox_letter, check)) &&
	       write_to(target, target->at.mailbox.value + offsetof(struct mailbox, wanted), &ticket,
			sizeof(ticket));
}

/* A request taken back looks like one that was seen.  Another's, written meanwhile, is asked again by the
 * other. */
void ask_take_back(void)
{
	struct seen mailbox;

	if (asking.ticket && read_mailbox(asking.target, &mailbox) && mailbox.wanted == asking.ticket)
		(void)write_to(asking.target,
			       asking.target->at.mailbox.value + offsetof(struct mailbox, wanted),
			       &mailbox.seen, sizeof(mailbox.seen));
	asking.ticket = 0;
}

static bool is_mine(const struct seen *mailbox)
{
	return asking.ticket && (uint32_t)(mailbox->answer >> 32) == asking.ticket;
}

/* Whether the request has been lost to another writer; one that was taken will be answered. */
static bool is_lost(const struct seen *mailbox)
{
	return asking.ticket && mailbox->wanted != asking.ticket && mailbox->seen != asking.ticket;
}

/* Whether a thread of the process is at it. */
static bool is_taken(const struct seen *mailbox)
{
	return asking.ticket && mailbox->seen == asking.ticket;
}

/* One look at the mailbox: posts the letter if it is not there.  Returns whether an answer came. */
static bool look(const struct target *target, const char *text, double others_until, struct seen *mailbox,
		 bool *unable)
{
	*unable = !read_mailbox(target, mailbox);
	if (*unable)
		return false;
	if (is_mine(mailbox) && (mailbox->answer & 0xff) != MAILBOX_GARBLED)
		return true;
	if (asking.ticket && !is_mine(mailbox) && !is_lost(mailbox))
		return false;
	/* So that of several that were in each other's way not all write at once again. */
	if (asking.ticket)
		usleep((useconds_t)(new_ticket() % (8 * POLL)));
	asking.ticket = 0;
	if (mailbox->wanted == mailbox->seen || wait_now() >= others_until)
		*unable = !post(target, text);
	return false;
}

static enum ask_outcome wait_for(struct target *target, const char *text, double patience,
				 struct seen *mailbox)
{
	const double begin = wait_now();
	bool unable;

	for (unsigned polls = 0;
	     !wait_interrupted && wait_now() < begin + patience + (is_taken(mailbox) ? AT_WORK : 0);
	     polls++) {
		if (polls % POLLS_PER_CHECK == 0 && target_check(target) != TARGET_READY)
			return ASK_ENDED;
		bounds_look(target->pid);
		bool answered = look(target, text, begin + OTHERS, mailbox, &unable);

		bounds_done();
		if (answered)
			return ASK_ANSWERED;
		if (unable)
			return target_check(target) == TARGET_READY ? ASK_UNABLE : ASK_ENDED;
		usleep(POLL);
	}
	uint32_t ticket = asking.ticket;

	ask_take_back();
	/* It may have been taken just before. */
	if (!ticket || !read_mailbox(target, mailbox))
		return ASK_SILENT;
	return (uint32_t)(mailbox->answer >> 32) == ticket ? ASK_ANSWERED
	       : mailbox->seen == ticket                   ? ASK_TAKEN
							   : ASK_SILENT;
}

enum ask_outcome ask(struct target *target, const char *text, double patience, enum mailbox_result *result,
		     unsigned *token)
{
	struct seen mailbox = {0};

	if (target->at.mailbox.size != sizeof(struct mailbox) ||
	    target->at.mailbox_letter.size != sizeof(struct mailbox_letter))
		return ASK_MAILBOXES;
	wait_catch();
	enum ask_outcome outcome = wait_for(target, text, patience, &mailbox);

	asking.ticket = 0;
	if (outcome == ASK_ANSWERED) {
		*result = (enum mailbox_result)(mailbox.answer & 0xff);
		*token = mailbox.answer >> 8 & 0xffff;
	}
	return outcome;
}
