/* SPDX-License-Identifier: MIT */
/* report/letter: which parts of a name, which may hold any bytes, can be shown as UTF-8. */
#ifndef CPUSLAB_REPORT_LETTER_H
#define CPUSLAB_REPORT_LETTER_H

#include <stddef.h>

/*
 * Whether three bytes of UTF-8 are a mark that turns the direction of text around, or separates lines:
 * U+200E, U+200F, U+2028 to U+202E, U+2066 to U+2069.  A name with one would show the rest of its line in
 * another order.
 */
static inline int letter_turns_text(const unsigned char *text)
{
	return text[0] == 0xe2 &&
	       ((text[1] == 0x80 && ((text[2] & 0xfe) == 0x8e || (text[2] >= 0xa8 && text[2] <= 0xae))) ||
		(text[1] == 0x81 && text[2] >= 0xa6 && text[2] <= 0xa9));
}

/*
 * Returns the length of the character at the start of a text; 0 for invalid UTF-8, or what would control a
 * terminal.
 */
static inline size_t letter_length(const char *name)
{
	const unsigned char *text = (const unsigned char *)name;
	/* The bounds of the second byte exclude overlong forms, surrogates and what is beyond U+10FFFF. */
	static const struct {
		unsigned char first, last, second_least, second_most, length;
	} kinds[] = {
		{' ', '~', 0, 0, 1},         {0xc2, 0xc2, 0xa0, 0xbf, 2}, {0xc3, 0xdf, 0x80, 0xbf, 2},
		{0xe0, 0xe0, 0xa0, 0xbf, 3}, {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3},
		{0xee, 0xef, 0x80, 0xbf, 3}, {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4},
		{0xf4, 0xf4, 0x80, 0x8f, 4},
	};

	for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
		if (text[0] < kinds[k].first || text[0] > kinds[k].last)
			continue;
		if (kinds[k].length > 1 &&
		    (text[1] < kinds[k].second_least || text[1] > kinds[k].second_most))
			return 0;
		for (size_t i = 2; i < kinds[k].length; i++)
			if ((text[i] & 0xc0) != 0x80)
				return 0;
		return kinds[k].length == 3 && letter_turns_text(text) ? 0 : kinds[k].length;
	}
	return 0;
}

#endif
