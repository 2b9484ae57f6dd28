/* SPDX-License-Identifier: MIT */
#include "check/stack.h"

#include <string.h>

#include "arch/arch.h"
#include "check/text.h"
#include "check/unwind.h"
#include "page/page.h"

enum { CHAINS = 4096 };

struct stack {
	uint32_t next; /* in its chain */
	uint32_t hash;
	uint32_t count;
	uintptr_t frame[];
};

static uint32_t chains[CHAINS] ARCH_SPARSE;
static size_t stored_bytes;

/* ---- the store ------------------------------------------------------------------------------------- */

static uint32_t hash_of(const uintptr_t *frame, unsigned count)
{
	uint64_t hash = count;

	for (unsigned i = 0; i < count; i++)
		hash = (hash ^ frame[i]) * 0x9e3779b97f4a7c15u;
	return (uint32_t)(hash >> 32);
}

static uint32_t look_up(uint32_t number, uint32_t hash, const uintptr_t *frame, unsigned count)
{
	while (number) {
		const struct stack *stack = metadata_block(number);

		if (stack->hash == hash && stack->count == count &&
		    memcmp(stack->frame, frame, count * sizeof *frame) == 0)
			return number;
		number = stack->next;
	}
	return 0;
}

/* Returns NULL where the store is full, or the system has no more memory. */
static struct stack *alloc_stack(size_t bytes)
{
	struct stack *stack = NULL;

	if (__atomic_add_fetch(&stored_bytes, bytes, __ATOMIC_RELAXED) <= STACK_STORE_BYTES)
		stack = metadata_alloc(bytes);
	if (!stack)
		__atomic_fetch_sub(&stored_bytes, bytes, __ATOMIC_RELAXED);
	return stack;
}

static void free_stack(struct stack *stack, size_t bytes)
{
	metadata_free(stack, bytes);
	__atomic_fetch_sub(&stored_bytes, bytes, __ATOMIC_RELAXED);
}

static uint32_t keep(const uintptr_t *frame, unsigned count)
{
	uint32_t hash = hash_of(frame, count), *chain = &chains[hash % CHAINS];
	/* Acquire: what the chain leads to is complete. */
	uint32_t head = __atomic_load_n(chain, __ATOMIC_ACQUIRE);
	uint32_t number = look_up(head, hash, frame, count);
	size_t bytes = sizeof(struct stack) + count * sizeof *frame;

	if (number)
		return number;
	struct stack *stack = alloc_stack(bytes);

	if (!stack)
		return 0;
	stack->hash = hash;
	stack->count = count;
	memcpy(stack->frame, frame, count * sizeof *frame);
	number = metadata_reference(stack);
	for (;;) {
		stack->next = head;
		/*
		 * Release: the stack is complete before it is found.  Acquire: reads what was inserted in
		 * between.
		 */
		if (__atomic_compare_exchange_n(chain, &head, number, false, __ATOMIC_ACQ_REL,
						__ATOMIC_ACQUIRE))
			return number;
		/* Another thread was first, perhaps with the same stack, which must have only one number. */
		uint32_t other = look_up(head, hash, frame, count);

		if (other) {
			free_stack(stack, bytes);
			return other;
		}
	}
}

/* ---- the caller's stack ---------------------------------------------------------------------------- */

uint32_t stack_capture(void)
{
	uintptr_t frame[STACK_FRAMES];
	unsigned count = unwind_callers(frame, STACK_FRAMES);

	return count ? keep(frame, count) : 0;
}

const uintptr_t *stack_frames(uint32_t number, unsigned *count)
{
	const struct stack *stack = number ? metadata_block(number) : NULL;

	*count = stack ? stack->count : 0;
	return stack ? stack->frame : NULL;
}

void stack_report(uint32_t number)
{
	unsigned count;
	const uintptr_t *frame = stack_frames(number, &count);

	for (unsigned i = 0; i < count; i++) {
		text_add("    ");
		text_add_code(frame[i]);
		text_add("\n");
	}
}
