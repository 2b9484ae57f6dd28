/* SPDX-License-Identifier: MIT */
/*
 * Handles faults at inaccessible memory, and reports them.
 *
 * A process has one SIGSEGV handler, and the program may want one too.  Ours passes on every fault that is
 * not about a guarded object, and one that is, once it has been reported.  sigaction() is not interposed:
 * when the program replaces our handler, the next pick notices, records the new handler as the one to pass
 * faults on to, and installs ours again.  Until then only the program's handler is called.
 *
 * A program's handler may in turn pass on to the one before it, which is ours.  Such a call comes from a
 * deeper frame of the same fault, and goes on to the handler that was there before us.
 *
 * A one-shot handler (SA_RESETHAND) often returns so that the same fault ends the program: like the system,
 * ours removes both handlers before it calls such a one.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "arch/fault.h"
#include "check/stack.h"
#include "check/text.h"
#include "guard/slot.h"
#include "options/options.h"
#include "page/page.h"

/* ---- reports --------------------------------------------------------------------------------------- */

/* The distance of an address from the bytes of a slot's object; 0 inside. */
static size_t distance(const struct guard_slot *slot, const char *address)
{
	if (address < slot->object)
		return (size_t)(slot->object - address);
	return address < slot->object + slot->requested ? 0
							: (size_t)(address - slot->object - slot->requested);
}

static struct guard_slot *used_slot(size_t number)
{
	struct guard_slot *slot = number < guard.slots ? &guard_slots[number] : NULL;

	return slot && slot->object ? slot : NULL;
}

struct guard_slot *slot_near(const void *address)
{
	size_t offset = (uintptr_t)address - guard.start;
	struct guard_slot *after = used_slot(offset / SLOT_STRIDE), *before;

	/* The page before a slot also guards the slot before it. */
	if (offset % SLOT_STRIDE >= OS_PAGE_BYTES)
		return after;
	before = offset >= SLOT_STRIDE ? used_slot(offset / SLOT_STRIDE - 1) : NULL;
	if (!after || !before)
		return after ? after : before;
	return distance(before, address) < distance(after, address) ? before : after;
}

static void add_owner(const char *title, const struct guard_owner *owner)
{
	text_add("%s by thread %u, age=%lu ms\n", title, owner->thread, os_milliseconds() - owner->when);
	stack_report(owner->stack);
}

static void add_place(const struct guard_slot *slot, const char *address)
{
	text_add("%p is at offset %td of an object of %zu bytes at %p, %s\n", (const void *)address,
		 address - slot->object, slot->requested, (void *)slot->object,
		 slot_state(slot) == GUARD_FREED ? "freed" : "in use");
}

void report_damage(const struct guard_slot *slot, const void *address, const char *what)
{
	uint32_t stack = stack_capture();

	text_begin();
	text_add("==============================================================================\n"
		 "BUG guarded: %s (pid %u)\n"
		 "------------------------------------------------------------------------------\n\n",
		 what, os_process_id());
	if (slot)
		add_place(slot, address);
	else
		text_add("%p is in no object, nor was it\n", address);
	text_add("Call stack of thread %u:\n", os_thread_id());
	stack_report(stack);
	if (slot)
		add_owner("Allocated", &slot->allocated);
	if (slot && slot_state(slot) == GUARD_FREED)
		add_owner("Freed", &slot->freed);
	text_add("\n");
	text_end();
}

static const char *kind_of_access(const struct guard_slot *slot, const char *address, int writes)
{
	static const char *const kinds[][3] = {
		{"Use after free", "Use after free (read)", "Use after free (write)"},
		{"Underflow", "Underflow (read)", "Underflow (write)"},
		{"Overflow", "Overflow (read)", "Overflow (write)"},
		{"Invalid access", "Invalid access (read)", "Invalid access (write)"},
	};
	unsigned kind = 3;

	if (slot && slot_state(slot) == GUARD_FREED)
		kind = 0;
	else if (slot && address < slot->object)
		kind = 1;
	else if (slot && address >= slot->object + slot->requested)
		kind = 2;
	return kinds[kind][writes + 1];
}

/* True when the program should go on as if nothing had happened. */
static bool report_access(char *address, const void *context)
{
	struct guard_slot *slot = slot_near(address);
	char *page = address - (uintptr_t)address % OS_PAGE_BYTES;

	/* Once per object: a handler that returns, or other threads, would fault again and again. */
	if (!slot || !__atomic_exchange_n(&slot->reported, 1, __ATOMIC_RELAXED))
		report_damage(slot, address, kind_of_access(slot, address, arch_fault_writes(context)));
	return options.debug_continue && os_commit(page, OS_PAGE_BYTES) == 0;
}

/* ---- the handler ----------------------------------------------------------------------------------- */

/*
 * What the program wants called.  Each distinct action is kept once and for ever, since a fault may be
 * reading it.
 */
struct action {
	struct action *next;
	struct sigaction wanted;
};

static struct action *actions, *original;
static const struct action *passed_to; /* the action that ours passes faults on to */

static void on_fault(int number, siginfo_t *information, void *context);

static bool is_default(const struct sigaction *action)
{
	return !(action->sa_flags & SA_SIGINFO) &&
	       (action->sa_handler == SIG_DFL || action->sa_handler == SIG_IGN);
}

static void set_default(int number)
{
	struct sigaction default_action = {.sa_handler = SIG_DFL};

	(void)os_signal_action(number, &default_action, NULL);
}

/* Without a handler: the system's own end of the program, at the faulting instruction. */
static void end_by_default(int number, const siginfo_t *information, const struct sigaction *action)
{
	/* A signal sent by a process does not recur, and may be ignored. */
	if (information->si_code <= 0 && action->sa_handler == SIG_IGN)
		return;
	set_default(number);
	if (information->si_code <= 0)
		(void)raise(number);
}

static void call(const struct sigaction *action, int number, siginfo_t *information, void *context)
{
	if (is_default(action)) {
		end_by_default(number, information, action);
		return;
	}
	if (action->sa_flags & (int)SA_RESETHAND)
		set_default(number);
	if (action->sa_flags & SA_SIGINFO)
		action->sa_sigaction(number, information, context);
	else
		action->sa_handler(number);
}

/* The fault that this thread is passing on: its description, and our handler's frame. */
static __thread struct {
	const siginfo_t *information;
	const char *frame;
} passing;

/* Returns whether this is no new fault: a handler that we passed one on to passes it on in turn. */
static bool comes_back(const siginfo_t *information, const char *frame)
{
	/*
	 * A fault whose handler left by longjmp may have lain at the same address, but then in the same
	 * frame.
	 */
	return passing.information == information && frame < passing.frame;
}

static void on_fault(int number, siginfo_t *information, void *context)
{
	const char *frame = __builtin_frame_address(0);
	const struct action *to = __atomic_load_n(&passed_to, __ATOMIC_ACQUIRE);

	if (comes_back(information, frame)) {
		call(&original->wanted, number, information, context);
		return;
	}
	if (information->si_code > 0 && guard_contains(information->si_addr) &&
	    report_access(information->si_addr, context))
		return;
	passing.information = information;
	passing.frame = frame;
	call(&to->wanted, number, information, context);
	passing.information = NULL;
}

static bool is_same(const struct sigaction *one, const struct sigaction *other)
{
	return one->sa_sigaction == other->sa_sigaction && one->sa_flags == other->sa_flags &&
	       memcmp(&one->sa_mask, &other->sa_mask, sizeof one->sa_mask) == 0;
}

/* Finds an action's entry or adds one; NULL when there is no memory. */
static struct action *find_action(const struct sigaction *wanted)
{
	struct action *first = __atomic_load_n(&actions, __ATOMIC_ACQUIRE);

	for (struct action *action = first; action; action = action->next)
		if (is_same(&action->wanted, wanted))
			return action;
	struct action *added = metadata_alloc(sizeof *added);

	if (!added)
		return NULL;
	added->wanted = *wanted;
	/*
	 * Release: an action is complete before it is found.  Two threads may add the same one: either
	 * serves.
	 */
	do
		added->next = first;
	while (!__atomic_compare_exchange_n(&actions, &first, added, false, __ATOMIC_RELEASE,
					    __ATOMIC_ACQUIRE));
	return added;
}

void fault_watch(void)
{
	struct sigaction present;

	if (os_signal_action(SIGSEGV, NULL, &present) != 0 || present.sa_sigaction == on_fault)
		return;
	struct action *action = find_action(&present);

	if (!action)
		return;
	if (!original)
		original = action;
	/* Signal mask, restart and deferral stay as the program wants them for its own handler. */
	struct sigaction ours = present;

	ours.sa_sigaction = on_fault;
	ours.sa_flags = (present.sa_flags & (SA_NODEFER | SA_RESTART)) | SA_SIGINFO | SA_ONSTACK;
	/* Before ours is installed, as it passes faults on to this one. */
	__atomic_store_n(&passed_to, action, __ATOMIC_RELEASE);
	(void)os_signal_action(SIGSEGV, &ours, NULL);
}
