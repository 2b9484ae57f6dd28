/* SPDX-License-Identifier: MIT */
/*
 * CPUSLAB_OPTIONS: valid tokens take effect, each invalid token costs one line of output and nothing else,
 * and abort_conf stops the program wherever in the string it stands.
 */
#include "options/options.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int failures;

#define CHECK(condition)                                                                                     \
	do {                                                                                                 \
		if (!(condition)) {                                                                          \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                      \
			failures++;                                                                          \
		}                                                                                            \
	} while (0)

struct outcome {
	int status;         /* as waitpid returns it */
	char errors[4096];  /* what the parser wrote to stderr */
	struct options got; /* the options afterwards, if the child lived */
};

/* Parses in a child: options are global, and one outcome is a dead process. */
static struct outcome parse(const char *string)
{
	struct outcome outcome = {0};
	int errors[2], result[2];
	if (pipe(errors) != 0 || pipe(result) != 0)
		abort();
	pid_t child = fork();
	if (child == 0) {
		dup2(errors[1], STDERR_FILENO);
		options_parse(string);
		ssize_t written = write(result[1], &options, sizeof(options));
		_exit(written != sizeof(options));
	}
	close(errors[1]);
	close(result[1]);
	size_t length = 0;
	for (ssize_t n;
	     (n = read(errors[0], outcome.errors + length, sizeof(outcome.errors) - 1 - length)) > 0;)
		length += (size_t)n;
	if (read(result[0], &outcome.got, sizeof(outcome.got)) < 0)
		abort();
	close(errors[0]);
	close(result[0]);
	waitpid(child, &outcome.status, 0);
	return outcome;
}

static unsigned lines(const char *text)
{
	unsigned count = 0;
	for (; *text; text++)
		count += *text == '\n';
	return count;
}

static void test_good_tokens(void)
{
	struct outcome o = parse("decay:250,dirty:8M,vcpu:slot,huge_pages:never,stats_at_exit:true,reserve:"
				 "2G,profile_signal:64");
	CHECK(o.status == 0 && o.errors[0] == '\0');
	CHECK(o.got.decay == 250);
	CHECK(o.got.dirty == 8ul << 20);
	CHECK(o.got.reserve == 2ul << 30);
	CHECK(o.got.vcpu == OPTION_VCPU_SLOT);
	CHECK(o.got.huge_pages == OPTION_HUGE_PAGES_NEVER);
	CHECK(o.got.stats_at_exit);
	CHECK(!o.got.abort_conf);
	CHECK(o.got.profile_signal == 64 && parse("profile_signal:12").got.profile_signal == 12);
}

static void test_later_token_wins(void)
{
	/* cpuslab run appends its options to those of the environment and relies on this. */
	CHECK(parse("decay:1,decay:2").got.decay == 2);
}

static void test_empty_tokens_are_no_tokens(void)
{
	struct outcome o = parse(",,decay:7,,");
	CHECK(o.status == 0 && o.errors[0] == '\0' && o.got.decay == 7);
	CHECK(parse("").errors[0] == '\0');
}

static void test_each_bad_token_costs_one_line(void)
{
	static const char *const bad[] = {
		"decay",
		"decay:",
		"decay:x",
		"decay:-1",
		"decay: 1",
		"decay:+1",
		"decay:1K",
		"dirty:1T",
		"dirty:1KK",
		"dirty:K",
		"vcpu:fast",
		"vcpu:",
		"vcpu:never",
		"huge_pages:slot",
		"huge_pages:",
		"nothing:1",
		":1",
		"abort_conf:2",
		"decay:99999999999999999999",
		"dirty:99999999999999999K",
		"stats_at_exit:TRUE",
		/*
		 * Signals that cannot be caught, are libc's or faults, do not exist, or would be valid only
		 * after truncation.
		 */
		"profile_signal:9",
		"profile_signal:19",
		"profile_signal:32",
		"profile_signal:33",
		"profile_signal:11",
		"profile_signal:7",
		"profile_signal:65",
		"profile_signal:4294967308",
		"profile_signal:SIGUSR2",
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		char string[128];
		snprintf(string, sizeof(string), "%s,reserve:3K", bad[i]);
		struct outcome o = parse(string);
		CHECK(o.status == 0);
		CHECK(lines(o.errors) == 1);
		CHECK(strstr(o.errors, bad[i]) != NULL);
		CHECK(o.got.reserve == 3072); /* the token after it counts */
		CHECK(o.got.decay == options.decay && o.got.dirty == options.dirty &&
		      o.got.vcpu == options.vcpu && o.got.profile_signal == 0 &&
		      o.got.huge_pages == options.huge_pages);
	}
}

static void test_lines_stay_whole(void)
{
	char string[5000];
	memset(string, 'x', sizeof(string) - 1);
	string[sizeof(string) - 1] = '\0';
	CHECK(lines(parse(string).errors) == 1);
	struct outcome o = parse("a\nb\033[31m:1");
	CHECK(lines(o.errors) == 1 && strchr(o.errors, '\033') == NULL);
}

static void test_abort_conf_anywhere(void)
{
	struct outcome before = parse("abort_conf:true,decay:x"), after = parse("decay:x,abort_conf:true");
	CHECK(WIFSIGNALED(before.status) && WTERMSIG(before.status) == SIGABRT && lines(before.errors) == 1);
	CHECK(WIFSIGNALED(after.status) && WTERMSIG(after.status) == SIGABRT && lines(after.errors) == 1);
	CHECK(parse("abort_conf:true,decay:5").status == 0);
	/* Like any flag: 1 means true, and the last of several counts, for all messages. */
	CHECK(WIFSIGNALED(parse("decay:x,abort_conf:1").status));
	CHECK(WIFSIGNALED(parse("abort_conf:false,decay:x,abort_conf:true").status));
	CHECK(parse("abort_conf:true,decay:x,abort_conf:0").status == 0);
}

static void test_environment(void)
{
	setenv("CPUSLAB_OPTIONS", "decay:77", 1);
	options_init();
	CHECK(options.decay == 77);
}

static void test_description_covers_every_option(void)
{
	struct option_description d;
	unsigned count = 0;
	bool saw_decay = false;
	for (; options_describe(count, &d); count++) {
		CHECK(d.name[0] && d.kind[0] && d.text[0] && d.initial[0] && d.value[0]);
		/* The parser accepts what it prints as a default. */
		char string[128];
		snprintf(string, sizeof(string), "%s:%s", d.name, d.initial);
		CHECK(parse(string).errors[0] == '\0');
		if (strcmp(d.name, "decay") == 0)
			saw_decay = strcmp(d.initial, "1000") == 0 && strcmp(d.value, "77") == 0;
		if (strcmp(d.name, "dirty") == 0)
			CHECK(strcmp(d.initial, "256M") == 0);
	}
	CHECK(saw_decay);
	CHECK(!options_describe(count + 1, &d));
}

int main(void)
{
	test_good_tokens();
	test_later_token_wins();
	test_empty_tokens_are_no_tokens();
	test_each_bad_token_costs_one_line();
	test_lines_stay_whole();
	test_abort_conf_anywhere();
	test_environment();
	test_description_covers_every_option();
	return failures != 0;
}
