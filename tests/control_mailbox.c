/* SPDX-License-Identifier: MIT */
/*
 * The mailbox that other processes write to: whole letters are obeyed once and answered; garbled ones change
 * nothing; of several writers at once each is answered; and whatever a writer puts there, at whatever moment,
 * no more comes of it than a change of options that can change, or memory that goes back.
 */
#include "check.h"

#include "magazine/control.h"
#include "options/options.h"

static uint32_t post(const char *text, size_t length)
{
	static uint32_t ticket;
	uint32_t mine = __atomic_add_fetch(&ticket, 1, __ATOMIC_RELAXED);

	control_letter.length = (uint32_t)length;
	memcpy(control_letter.text, text, length < MAILBOX_TEXT ? length : MAILBOX_TEXT);
	control_letter.check = length <= MAILBOX_TEXT ? mailbox_check(mine, &control_letter) : 0;
	__atomic_store_n(&control_mailbox.wanted, mine, __ATOMIC_RELEASE);
	return mine;
}

/* Any slow path. */
static void pass_by(void)
{
	free(malloc(3 << 20));
}

static void expect(const char *text, enum mailbox_result result, unsigned token)
{
	uint32_t ticket = post(text, strlen(text));

	pass_by();
	CHECK(control_letter.answer == mailbox_answer(ticket, result, token), "%s: %#lx", text,
	      control_letter.answer);
	CHECK(!control_is_due());
}

static void test_letters(void)
{
	expect("decay:5", MAILBOX_DONE, 0);
	CHECK(options.decay == 5);
	expect("decay:6,dirty:3M,merge:0,", MAILBOX_DONE, 0);
	CHECK(options.decay == 6 && options.dirty == 3u << 20 && !options.merge);
	expect("merge:1", MAILBOX_DONE, 0);
	/* All or nothing. */
	expect("decay:7,dirty:9M,hardened:1", MAILBOX_FIXED, 2);
	expect("decay:7,dirty", MAILBOX_INVALID, 1);
	expect("decay:7,dirty:x", MAILBOX_INVALID, 1);
	expect("decay:7,,dirty:9M", MAILBOX_INVALID, 1);
	expect("trim,decay:7", MAILBOX_INVALID, 0);
	CHECK(options.decay == 6 && options.dirty == 3u << 20 && options.merge && !options.hardened);
	expect("", MAILBOX_DONE, 0);
	expect("trim", MAILBOX_DONE, 0);
}

/* The misses of each kind of call obey; hits do not look. */
static void test_ways(void)
{
	void *held[2000];
	unsigned i;

	post("decay:31", 8);
	for (i = 0; i < 2000 && options.decay != 31; i++)
		CHECK((held[i] = malloc(100)));
	CHECK(options.decay == 31, "allocations");
	unsigned few = i;

	while (i < 2000)
		CHECK((held[i++] = malloc(100)));
	post("decay:32", 8);
	for (i = 0; i < 2000; i++)
		free(held[i]);
	CHECK(options.decay == 32, "frees");
	CHECK(few > 0);
	post("decay:33", 8);
	held[0] = malloc(200 << 10);
	free(held[0]);
	CHECK(options.decay == 33, "large objects");
}

static void test_garbled(void)
{
	uint64_t random = 3;
	struct options before = options;

	for (int i = 0; i < 20000; i++) {
		uint32_t ticket = post("decay:9", 7);
		const size_t check = offsetof(struct mailbox_letter, check);
		char *letter = (char *)&control_letter + check;

		/* One bit of what was written. */
		letter[check_below(&random, offsetof(struct mailbox_letter, text) - check + 7)] ^=
			(char)(1 << check_below(&random, 8));
		pass_by();
		CHECK(control_letter.answer == mailbox_answer(ticket, MAILBOX_GARBLED, 0));
	}
	(void)post("decay:9", MAILBOX_TEXT + 1);
	pass_by();
	CHECK((control_letter.answer & 0xff) == MAILBOX_GARBLED);
	/* A copy, so that its padding is alike. NOLINTNEXTLINE(bugprone-suspicious-memory-comparison) */
	CHECK(memcmp(&before, &options, sizeof before) == 0);
}

static bool over;

/* Writes anything anywhere in the mailbox, and now and then what passes the check. */
static void *scribble(void *argument)
{
	uint64_t random = (uintptr_t)argument + 1;
	static const char *const texts[] = {"decay:0",   "trim",      "dirty:1M,decay:2",
					    "profile:0", "reserve:0", "hardened:1",
					    "dirty:x",   ":",         "decay:4000000000"};

	while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
		size_t at = check_below(&random, sizeof control_letter);

		((volatile char *)&control_letter)[at] = (char)check_below(&random, 256);
		switch (check_below(&random, 4)) {
		case 0:
			__atomic_store_n(&control_mailbox.wanted, (uint32_t)check_below(&random, 1u << 31),
					 __ATOMIC_RELAXED);
			break;
		case 1:
			__atomic_store_n(&control_mailbox.seen, (uint32_t)check_below(&random, 1u << 31),
					 __ATOMIC_RELAXED);
			break;
		default: {
			const char *text = texts[check_below(&random, sizeof texts / sizeof *texts)];

			(void)post(text, strlen(text));
		}
		}
		for (int i = 0; i < 50; i++)
			sched_yield();
	}
	return NULL;
}

static void test_hostile(void)
{
	enum { OBJECTS = 500, ROUNDS = 60000 };
	static unsigned char *object[OBJECTS];
	struct options before = options;
	pthread_t thread[2];
	uint64_t random = 5;

	for (uintptr_t i = 0; i < 2; i++)
		CHECK(!pthread_create(&thread[i], NULL, scribble, (void *)i));
	for (unsigned round = 0; round < ROUNDS; round++) {
		size_t i = check_below(&random, OBJECTS), bytes = 1 + check_below(&random, 9000);

		CHECK(!object[i] || *object[i] == (unsigned char)i);
		free(object[i]);
		CHECK((object[i] = malloc(bytes)));
		memset(object[i], (int)i, bytes);
	}
	__atomic_store_n(&over, true, __ATOMIC_RELAXED);
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	/* Nothing but what can change. */
	before.decay = options.decay;
	before.dirty = options.dirty;
	/* A copy, so that its padding is alike. NOLINTNEXTLINE(bugprone-suspicious-memory-comparison) */
	CHECK(memcmp(&before, &options, sizeof before) == 0);
	for (int i = 0; i < OBJECTS; i++)
		free(object[i]);
	pass_by();
}

/* A child of a process with a request obeys it as well, in its own memory. */
static void in_child(void *unused)
{
	(void)unused;
	pass_by();
	CHECK(options.decay == 41);
}

static void test_fork(void)
{
	char said[256];

	post("decay:41", 8);
	int status = check_child(in_child, NULL, said, sizeof said);

	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s", said);
	CHECK(options.decay != 41);
	pass_by();
	CHECK(options.decay == 41);
}

int main(void)
{
	check_watchdog(60);
	pass_by();
	test_letters();
	test_ways();
	test_garbled();
	test_hostile();
	test_fork();
	return 0;
}
