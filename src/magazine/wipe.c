/* SPDX-License-Identifier: MIT */
#include "magazine/wipe.h"

#include <string.h>

#include "check/blank.h"
#include "os/os.h"
#include "page/page.h"
#include "slab/slab.h"
#include "vcpu/vcpu.h"

enum {
	PAGED_LEAST = 8 << 10, /* bytes of an object that is wiped page by page */
	PAGED_MOST = 1 << 20,  /* malloc's end at 256 KiB */
	PAGES_MOST = PAGED_MOST >> PAGE_SHIFT,
	/*
	 * From this size on the system is asked which pages are resident.  That takes 270 ns, as long as
	 * reading some 24 KiB.
	 */
	ASKED_LEAST = 32 << 10,
	/*
	 * What may stay resident while it waits, besides as much as the program has in such objects.  Slots,
	 * of which there may be thousands, would each have some of each size waiting: they get no more than
	 * this.
	 */
	WAITING_LEAST = (8 << 20) >> PAGE_SHIFT,
};

/* Bytes of objects that are looked at by pages and that the program has. */
static uint64_t out ARCH_SPARSE;

static bool is_paged(uint32_t bytes)
{
	return bytes >= PAGED_LEAST && bytes <= PAGED_MOST;
}

/* An object's whole pages, and what lies before and behind them. */
struct parts {
	char *head, *pages, *tail;
	size_t head_bytes, page_count, tail_bytes;
};

static struct parts parts_of(void *object, uint32_t bytes)
{
	char *start = object;
	size_t head_bytes = -(uintptr_t)object % PAGE_BYTES;
	size_t tail_bytes = ((uintptr_t)object + bytes) % PAGE_BYTES;

	return (struct parts){
		.head = start,
		.pages = start + head_bytes,
		.tail = start + bytes - tail_bytes,
		.head_bytes = head_bytes,
		.page_count = (bytes - head_bytes - tail_bytes) >> PAGE_SHIFT,
		.tail_bytes = tail_bytes,
	};
}

static bool is_blank_part(const char *part, size_t bytes)
{
	return !bytes || blank_is(part, bytes);
}

/* Reads first: what was never written to need not become resident.  Returns whether it was. */
static bool fill_part(char *part, size_t bytes)
{
	if (is_blank_part(part, bytes))
		return false;
	blank_fill(part, bytes);
	return true;
}

/* Sets resident[i] for each whole page that may be resident. */
static void look_at_pages(const struct parts *parts, uint32_t bytes, unsigned char *resident)
{
	if (bytes >= ASKED_LEAST)
		os_resident(parts->pages, parts->page_count, resident);
	else
		memset(resident, 1, parts->page_count);
}

static bool keep_much(void)
{
	uint64_t most = WAITING_LEAST;

	if (vcpu_mode() != CPUSLAB_VCPU_THREAD_SLOT)
		most += __atomic_load_n(&out, __ATOMIC_RELAXED) >> PAGE_SHIFT;
	return __atomic_load_n(&slab_waiting_pages, __ATOMIC_RELAXED) > most;
}

/* Zeroes the pages that may be resident, and returns how many of them were written to. */
static unsigned fill_pages(const struct parts *parts, const unsigned char *resident)
{
	unsigned written = 0;

	for (size_t i = 0; i < parts->page_count; i++)
		if (resident[i] & 1)
			written += fill_part(parts->pages + (i << PAGE_SHIFT), PAGE_BYTES);
	return written;
}

static unsigned count_pages(const struct parts *parts, const unsigned char *resident)
{
	unsigned count = 0;

	for (size_t i = 0; i < parts->page_count; i++)
		count += resident[i] & 1;
	return count;
}

/* Marks an object that stays resident. */
static void note_waiting(uint16_t *mark, unsigned pages)
{
	uint16_t waiting = SLAB_BACK + 1;

	while (waiting < SLAB_FREE_MOST && slab_waits_by(waiting) < pages)
		waiting++;
	__atomic_store_n(mark, waiting, __ATOMIC_RELAXED);
	__atomic_fetch_add(&slab_waiting_pages, slab_waits_by(waiting), __ATOMIC_RELAXED);
}

static void wipe_pages(void *object, uint16_t *mark, uint32_t bytes, size_t used)
{
	struct parts parts = parts_of(object, bytes);
	unsigned char resident[PAGES_MOST];

	look_at_pages(&parts, bytes, resident);
	unsigned count = count_pages(&parts, resident);

	(void)fill_part(parts.head, parts.head_bytes);
	if (used > bytes - parts.tail_bytes)
		(void)fill_part(parts.tail, parts.tail_bytes);
	if (!count || (keep_much() && os_purge(parts.pages, parts.page_count << PAGE_SHIFT) == 0))
		return;
	unsigned written = fill_pages(&parts, resident);

	note_waiting(mark, bytes < ASKED_LEAST ? written : count);
}

void wipe(void *object, uint16_t *mark, uint32_t bytes, size_t used)
{
	if (!is_paged(bytes)) {
		blank_fill(object, used);
		return;
	}
	__atomic_fetch_sub(&out, bytes, __ATOMIC_RELAXED);
	wipe_pages(object, mark, bytes, used);
}

bool wipe_left_blank(void *object, uint32_t bytes)
{
	if (!is_paged(bytes))
		return blank_is(object, bytes);

	struct parts parts = parts_of(object, bytes);
	unsigned char resident[PAGES_MOST];
	bool blank =
		is_blank_part(parts.head, parts.head_bytes) && is_blank_part(parts.tail, parts.tail_bytes);

	/* A page that is not resident was not written to since it went back. */
	look_at_pages(&parts, bytes, resident);
	for (size_t i = 0; i < parts.page_count && blank; i++)
		blank = !(resident[i] & 1) || blank_is(parts.pages + (i << PAGE_SHIFT), PAGE_BYTES);
	return blank;
}

void wipe_note_out(uint16_t was, uint32_t bytes)
{
	if (!is_paged(bytes))
		return;
	__atomic_fetch_add(&out, bytes, __ATOMIC_RELAXED);
	__atomic_fetch_sub(&slab_waiting_pages, slab_waits_by(was), __ATOMIC_RELAXED);
}
