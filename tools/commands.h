/* SPDX-License-Identifier: MIT */
/*
 * The `cpuslab` command.  It runs on the system's malloc itself: it starts other programs on cpuslab, and
 * never links the allocator.
 */
#ifndef CPUSLAB_TOOLS_COMMANDS_H
#define CPUSLAB_TOOLS_COMMANDS_H

#include <limits.h>
#include <stdbool.h>

/*
 * argv[0] is "cpuslab" and the subcommand's name.  Each returns the exit status: 2 for a usage error, as
 * POSIX tools do.
 */
#define COMMAND(name, arguments, text) int command_##name(int argc, char **argv);
#include "commands.def"
#undef COMMAND

/* Prints one line on what an option takes; returns 2, the command's exit status. */
int wrong_value(const char *command, const char *option, const char *value, const char *wanted);

/*
 * Prints a line on standard error for each library that this command was built without, though it would name
 * functions and lines with it.
 */
void say_lacks(const char *command);

/*
 * Finds the shared library to preload: beside the executable (a build tree), in ../lib of it (an installed
 * tree that was moved), or where `make install` put it.  Returns false if it is in none of these.
 */
bool library_find(char path[static PATH_MAX]);

/*
 * Puts `path` first in LD_PRELOAD of this process.  Returns false, with a line on stderr, if the path
 * contains a space or a colon: the dynamic linker splits there and would silently preload nothing.
 */
bool library_preload(const char *path);

/*
 * Returns why a program, named as for execvp, will not take what is preloaded, as a sentence about it; NULL
 * if nothing speaks against it.  `*hurts`: nor will its children, and its dynamic linker would complain or
 * refuse to run it.
 */
const char *preload_obstacle(const char *program, bool *hurts);

#endif
