/* SPDX-License-Identifier: MIT */
/*
 * Zeroed memory: no non-zero byte of an object is overlooked, and zeroing covers the object and nothing
 * beside it, with and without the processor's wide instructions.
 */
#include "check.h"

#include "check/blank.h"

enum { MOST = 1152, AROUND = 64 };

static unsigned char memory[AROUND + BLANK_UNIT + MOST + AROUND] __attribute__((aligned(64)));

static void try_size(unsigned char *object, size_t bytes)
{
	memset(memory, 0xff, sizeof memory);
	blank_fill(object, bytes - BLANK_UNIT + 1);
	for (unsigned char *byte = memory; byte < memory + sizeof memory; byte++)
		CHECK(*byte == (byte >= object && byte < object + bytes ? 0 : 0xff), "%zu bytes, at %td",
		      bytes, byte - object);
	CHECK(blank_is(object, bytes));
	for (size_t i = 0; i < bytes; i++) {
		object[i] = 0x10;
		CHECK(!blank_is(object, bytes), "%zu bytes, at %zu", bytes, i);
		object[i] = 0;
	}
}

static void try_all(void)
{
	for (size_t bytes = BLANK_UNIT; bytes <= MOST; bytes += BLANK_UNIT) {
		try_size(memory + AROUND, bytes);
		try_size(memory + AROUND + BLANK_UNIT, bytes);
	}
}

int main(void)
{
	CHECK(!blank_wide);
	try_all();
	blank_init();
	try_all();
	return 0;
}
