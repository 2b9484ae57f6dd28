/* SPDX-License-Identifier: MIT */
#include "magazine/control.h"

#include <errno.h>
#include <string.h>

#include "options/options.h"
#include "page/page.h"
#include "profile/profile.h"

struct mailbox control_mailbox;
struct mailbox_letter control_letter ARCH_SPARSE;

/* Tells those who do not read an option anew each time. */
static void apply(uint64_t changed)
{
	/* More may be overdue. */
	if (changed & (OPTION_BIT(decay) | OPTION_BIT(dirty) | OPTION_BIT(limit) | OPTION_BIT(limit_hard)))
		page_options_changed();
	if (changed & OPTION_BIT(profile))
		__atomic_store_n(&profile.wanted, options.profile, __ATOMIC_RELEASE);
}

int magazine_control(const char *name, const char *value)
{
	uint64_t changed;
	int error = options_change(name, value, &changed);

	apply(changed);
	return error;
}

/* Copies the letter, each byte once: what is checked is what is obeyed, whoever writes meanwhile. */
static bool take_letter(uint32_t ticket, struct mailbox_letter *letter)
{
	letter->check = __atomic_load_n(&control_letter.check, __ATOMIC_RELAXED);
	letter->length = __atomic_load_n(&control_letter.length, __ATOMIC_RELAXED);
	if (letter->length > MAILBOX_TEXT)
		return false;
	for (uint32_t i = 0; i < letter->length; i++)
		letter->text[i] = __atomic_load_n(&control_letter.text[i], __ATOMIC_RELAXED);
	return letter->check == mailbox_check(ticket, letter);
}

/* Does what a letter says, but for memory that is to go back. */
static void follow(const struct mailbox_letter *letter, struct control_request *request)
{
	static const char trim[] = "trim";
	uint64_t changed;

	request->trims =
		letter->length == sizeof trim - 1 && memcmp(letter->text, trim, sizeof trim - 1) == 0;
	if (request->trims)
		return;
	int error = options_change_all(letter->text, letter->length, &changed, &request->token);

	if (error) {
		request->result = error == EPERM ? MAILBOX_FIXED : MAILBOX_INVALID;
		return;
	}
	request->token = 0;
	apply(changed);
}

__attribute__((noinline, cold)) bool control_take(struct control_request *request)
{
	struct mailbox_letter letter;
	uint32_t seen = __atomic_load_n(&control_mailbox.seen, __ATOMIC_RELAXED);
	/* Acquire: the letter was written before. */
	uint32_t wanted = __atomic_load_n(&control_mailbox.wanted, __ATOMIC_ACQUIRE);

	/* Of several threads one makes the exchange, and it alone obeys. */
	if (wanted == seen || !__atomic_compare_exchange_n(&control_mailbox.seen, &seen, wanted, false,
							   __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
		return false;
	*request = (struct control_request){.ticket = wanted, .result = MAILBOX_DONE};
	if (take_letter(wanted, &letter))
		follow(&letter, request);
	else
		request->result = MAILBOX_GARBLED;
	return true;
}

void control_answer(const struct control_request *request)
{
	/* Release: what was done is seen by whoever sees the answer. */
	__atomic_store_n(&control_letter.answer,
			 mailbox_answer(request->ticket, request->result, request->token), __ATOMIC_RELEASE);
}

void control_show(void (*show)(const char *name, uintptr_t value, size_t size))
{
	show("mailbox", (uintptr_t)&control_mailbox, sizeof control_mailbox);
	show("mailbox.letter", (uintptr_t)&control_letter, sizeof control_letter);
	show("options", (uintptr_t)&options, sizeof options);
	show("options.table", (uintptr_t)option_table, sizeof option_table);
}
