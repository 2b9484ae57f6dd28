/* SPDX-License-Identifier: MIT */
#include "check/text.h"

#include <stdio.h>

#include "arch/arch.h"
#include "check/symbol.h"
#include "cpuslab/lock.h"
#include "os/os.h"

static struct cpuslab_spinlock text_lock = CPUSLAB_SPINLOCK_INITIALIZER;
static char buffer[32 << 10] ARCH_SPARSE;
static size_t length;

static void flush(void)
{
	os_write_error(buffer, length);
	length = 0;
}

void text_begin(void)
{
	cpuslab_spin_lock(&text_lock);
}

void text_end(void)
{
	flush();
	cpuslab_spin_unlock(&text_lock);
}

bool text_is_torn(void)
{
	return cpuslab_spin_is_locked(&text_lock);
}

void text_repair(void)
{
	if (!text_is_torn())
		return;
	/* The parent's thread writes it; here it would appear a second time. */
	length = 0;
	cpuslab_spin_reset(&text_lock);
}

char *text_room(void)
{
	if (sizeof buffer - length < TEXT_LINE)
		flush();
	return buffer + length;
}

void text_added(int characters)
{
	if (characters > 0)
		length += characters < TEXT_LINE ? (size_t)characters : TEXT_LINE - 1;
}

int text_code(char *to, size_t bytes, uintptr_t address)
{
	struct symbol symbol;
	int done = 0;

	/*
	 * Look up the call: if it is its function's last instruction, the return address is the next
	 * function's.
	 */
	symbol_find(address - 1, &symbol);
	if (symbol.function)
		done = snprintf(to, bytes, "%s+%#lx/%#lx ", symbol.function, symbol.function_offset + 1,
				symbol.function_bytes);
	if (done < 0 || (size_t)done >= bytes)
		return done;
	to += done;
	bytes -= (size_t)done;
	return done + (symbol.module
			       ? snprintf(to, bytes, "(%s+%#lx)", symbol.module, symbol.module_offset + 1)
			       : snprintf(to, bytes, "%#lx", address));
}

void text_add_code(uintptr_t address)
{
	text_added(text_code(text_room(), TEXT_LINE, address));
}

void text_add_bytes(const char *title, const unsigned char *start, size_t count)
{
	enum { ROW = 16 };

	for (size_t done = 0; done < count; done += ROW) {
		size_t row = count - done < ROW ? count - done : ROW;
		const unsigned char *bytes = start + done;

		text_add("%-9s %p: ", title, (const void *)bytes);
		for (size_t i = 0; i < ROW; i++)
			if (i < row)
				text_add("%02x ", bytes[i]);
			else
				text_add("   ");
		for (size_t i = 0; i < row; i++)
			text_add("%c", bytes[i] >= ' ' && bytes[i] < 0x7f ? bytes[i] : '.');
		text_add("\n");
	}
}
