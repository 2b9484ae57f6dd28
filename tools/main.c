/* SPDX-License-Identifier: MIT */
#include "commands.h"
#include "inspect/demangle.h"
#include "inspect/lines.h"

#include <stdio.h>
#include <string.h>

static const struct command {
	const char *name, *arguments, *text;
	int (*run)(int argc, char **argv);
} commands[] = {
#define COMMAND(name, arguments, text) {#name, arguments, text, command_##name},
#include "commands.def"
#undef COMMAND
};

enum { COMMAND_COUNT = sizeof(commands) / sizeof(commands[0]) };

static void print_help(FILE *to)
{
	fputs("usage: cpuslab COMMAND ...\n\n", to);
	for (unsigned i = 0; i < COMMAND_COUNT; i++)
		fprintf(to, "  cpuslab %s%s%s\n      %s\n", commands[i].name,
			*commands[i].arguments ? " " : "", commands[i].arguments, commands[i].text);
}

int wrong_value(const char *command, const char *option, const char *value, const char *wanted)
{
	fprintf(stderr, "%s: %s takes %s, not '%s'\n", command, option, wanted, value);
	return 2;
}

void say_lacks(const char *command)
{
	const char *lacks[] = {demangle_lacks(), lines_lacks()};

	for (unsigned i = 0; i < 2; i++)
		if (lacks[i])
			fprintf(stderr, "%s: built without %s\n", command, lacks[i]);
}

/* Flushes standard output, since buffered output may still fail to be written. */
static int finish(int status)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return status;
	perror("cpuslab: standard output");
	return status ? status : 1;
}

/* For a command that takes no arguments but was given one. */
static int usage(const struct command *command, const char *argument)
{
	bool asked = strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0;

	if (!asked)
		fprintf(stderr, "cpuslab %s: no arguments are taken, not '%s'\n", command->name, argument);
	fprintf(asked ? stdout : stderr, "usage: cpuslab %s\n      %s\n", command->name, command->text);
	return finish(asked ? 0 : 2);
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		print_help(stderr);
		return 2;
	}
	for (unsigned i = 0; i < COMMAND_COUNT; i++)
		if (strcmp(argv[1], commands[i].name) == 0) {
			char name[sizeof("cpuslab ") + 16];

			/* The name that messages begin with, getopt's too. */
			snprintf(name, sizeof(name), "cpuslab %s", commands[i].name);
			argv[1] = name;
			if (!*commands[i].arguments && argc > 2)
				return usage(&commands[i], argv[2]);
			return finish(commands[i].run(argc - 1, argv + 1));
		}
	if (strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
		print_help(stdout);
		return finish(0);
	}
	if (strcmp(argv[1], "--version") == 0)
		return finish(command_version(argc - 1, argv + 1));
	fprintf(stderr, "cpuslab: no command '%s'\n\n", argv[1]);
	print_help(stderr);
	return 2;
}
