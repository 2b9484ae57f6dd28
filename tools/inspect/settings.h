/* SPDX-License-Identifier: MIT */
/* inspect/settings: the options that are in force in another process. */
#ifndef CPUSLAB_TOOLS_SETTINGS_H
#define CPUSLAB_TOOLS_SETTINGS_H

#include <stdio.h>

#include "inspect/target.h"

enum { SETTINGS_MOST = 64, SETTING_NAME = 24, SETTING_VALUE = 32 };

struct settings {
	size_t count;
	struct setting {
		char name[SETTING_NAME], value[SETTING_VALUE];
		bool changes; /* while the program runs */
	} each[SETTINGS_MOST];
};

/* Returns false if they cannot be read, or the process's library does not tell them. */
bool settings_read(const struct target *target, struct settings *settings);
/* Prints a line for each: key:value, and what can be changed. */
void settings_print(FILE *to, const struct settings *settings);

#endif
