/* SPDX-License-Identifier: MIT */
/* json_string: prints JSON strings, for every part of the command. */
#ifndef CPUSLAB_TOOLS_JSON_STRING_H
#define CPUSLAB_TOOLS_JSON_STRING_H

#include <stdio.h>

/* Names may contain any byte.  Bytes beyond ASCII are printed as they are, so that UTF-8 stays UTF-8. */
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
