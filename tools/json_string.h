/* SPDX-License-Identifier: MIT */
/* json_string: a string as JSON has it, for every part of the command that writes some. */
#ifndef CPUSLAB_TOOLS_JSON_STRING_H
#define CPUSLAB_TOOLS_JSON_STRING_H

#include <stdio.h>

/* Names may hold any byte; what is not ASCII goes out as it is: if it is UTF-8 it was so before. */
static inline void json_print_string(FILE *to, const char *text)
{
	fputc('"', to);
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if (c == '"' || c == '\\')
			fprintf(to, "\\%c", c);
		else if (c < ' ')
			fprintf(to, "\\u%04x", c);
		else
			fputc(c, to);
	}
	fputc('"', to);
}

#endif
