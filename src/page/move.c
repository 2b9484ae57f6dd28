/* SPDX-License-Identifier: MIT */
#include "page/move.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "arch/minmax.h"
#include "os/os.h"
#include "page/block.h"
#include "page/page.h"
#include "page/sparse.h"

/* Below this size contents are copied as they are: what they could take needlessly is little. */
enum { SPARSE_FROM = 128 << 10 };

/* Sixteen bytes at any address. */
typedef uint64_t pair __attribute__((vector_size(16), aligned(1), may_alias));

/* Four pairs at a time: calloc of pages that others have used waits for it. */
static bool is_clear(const char *start, size_t bytes)
{
	const char *end = start + bytes;

	for (; (size_t)(end - start) >= 4 * sizeof(pair); start += 4 * sizeof(pair)) {
		const pair *at = (const pair *)start;
		pair any = (at[0] | at[1]) | (at[2] | at[3]);

		if (any[0] | any[1])
			return false;
	}
	while (start < end && !*start)
		start++;
	return start == end;
}

/* The bytes from `start` to the end of its page, `most` at most. */
static size_t rest_of_page(const char *start, size_t most)
{
	return min_t(size_t, PAGE_BYTES - ((uintptr_t)start & (PAGE_BYTES - 1)), most);
}

/* How many bytes from `start` on are clear by whole pages, or are not. */
static size_t alike(const char *start, size_t bytes, bool clear)
{
	size_t done = 0;

	while (done < bytes) {
		size_t part = rest_of_page(start + done, bytes - done);

		if (is_clear(start + done, part) != clear)
			break;
		done += part;
	}
	return done;
}

void sparse_clear(void *start, size_t bytes)
{
	char *rest = start, *end = rest + bytes;

	while (rest < end) {
		size_t part = rest_of_page(rest, (size_t)(end - rest));

		if (!is_clear(rest, part))
			memset(rest, 0, part);
		rest += part;
	}
}

void sparse_copy(void *to, const void *from, size_t bytes)
{
	char *target = to;
	const char *source = from;

	if (bytes < SPARSE_FROM) {
		memcpy(to, from, bytes);
		return;
	}
	for (size_t done = 0, part; done < bytes; done += part) {
		part = alike(source + done, bytes - done, false);
		memcpy(target + done, source + done, part);
		done += part;
		part = alike(source + done, bytes - done, true);
		sparse_clear(target + done, part);
	}
}

/*
 * What is kept can only be moved as long as it is; so what is to grow takes its pages elsewhere first.  On
 * failure everything is where it was.
 */
static int move_and_grow(char *from, size_t old, char *to, size_t bytes)
{
	char *between = os_take_pages(from, old);

	/* The halves show whether it was for more than one mapping. */
	if (!between)
		return EFAULT;
	int error = os_move(between, old, to, bytes, false);

	if (error && os_move(between, old, from, old, false) != 0) {
		sparse_copy(from, between, old);
		(void)os_unmap(between, old);
	}
	return error;
}

/*
 * The system moves no more than one of its mappings at a time, and has more where some pages have been given
 * other advice, mostly by whole blocks: then halves go separately (EFAULT).
 */
bool move_pages(char *from, size_t old, char *to, size_t bytes, void (*give_back)(void *start, size_t bytes))
{
	int error = !give_back && bytes > old ? move_and_grow(from, old, to, bytes)
					      : os_move(from, old, to, bytes, !give_back);

	if (!error)
		return true;
	if (error == EFAULT && old > PAGE_BYTES) {
		uintptr_t unit = old > 2 * BLOCK_BYTES ? BLOCK_BYTES : PAGE_BYTES;
		size_t half = (((uintptr_t)from + old / 2) & -unit) - (uintptr_t)from;
		bool moved = move_pages(from, half, to, half, give_back);

		return move_pages(from + half, old - half, to + half, bytes - half, give_back) && moved;
	}
	sparse_copy(to, from, old);
	if (give_back)
		give_back(from, old);
	return false;
}
