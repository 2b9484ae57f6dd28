/* SPDX-License-Identifier: MIT */
/*
 * Any architecture without asm here: each thread is a vCPU (a slot of its own), so that plain C can change
 * the same words.  The compiler must keep the order of push's two stores, because fork may copy the memory
 * between them.
 */
#ifndef CPUSLAB_ARCH_GENERIC_H
#define CPUSLAB_ARCH_GENERIC_H

#define ARCH_HAS_RSEQ   0
#define ARCH_HAS_THREAD 0 /* a thread of the library's own is x86-64's */
#define ARCH_HAS_PAIR   0 /* arch_replace_pair is x86-64's */
#define ARCH_HAS_WIDE   0 /* and so are arch_clear_wide and arch_is_clear_wide */
#define ARCH_HAS_LONG   0 /* and arch_copy_long and arch_fill_long */

static inline uint32_t arch_id(struct arch_self self)
{
	return *(const volatile uint32_t *)((const char *)__builtin_thread_pointer() + self.id);
}

static inline uintptr_t *arch_word(struct arch_self self, const void *map, uintptr_t offset)
{
	const uintptr_t *table = (const uintptr_t *)((const char *)map - ARCH_TABLE_BYTES);

	return (uintptr_t *)(__atomic_load_n(&table[(int32_t)arch_id(self)], __ATOMIC_ACQUIRE) + offset);
}

/* A word without a magazine is an odd address, which is read through all the same. */
typedef void *arch_slot __attribute__((aligned(1), may_alias));

static inline void *arch_pop(struct arch_self self, const void *map, const uint16_t *offset)
{
	uintptr_t *word = arch_word(self, map, *offset);
	void *object = *(const arch_slot *)*word;

	if (object)
		__atomic_store_n(word, *word - sizeof(void *), __ATOMIC_RELAXED);
	return object;
}

static inline bool arch_push(struct arch_self self, const void *map, const uint16_t *offset, void *object)
{
	uintptr_t *word = arch_word(self, map, *offset);
	const arch_slot *top = (const arch_slot *)*word;

	if (top[0] == object || ((uintptr_t)top[1] & 1))
		return false;
	void **above = (void **)*word + 1;

	__atomic_store_n(above, object, __ATOMIC_RELAXED);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	__atomic_store_n(word, (uintptr_t)above, __ATOMIC_RELEASE);
	return true;
}

static inline void *arch_list_pop(struct arch_self self, const void *map, const uint16_t *offset,
				  const struct arch_list *list)
{
	uintptr_t *word = arch_word(self, map, *offset), object = *word;

	if (object & 1)
		return NULL;
	uintptr_t link = object + list->link, next = *(const uintptr_t *)link ^ link ^ list->secret;

	if ((next ^ object) > list->slab_mask)
		return NULL;
	__atomic_store_n(word, next, __ATOMIC_RELEASE);
	return (void *)object;
}

static inline bool arch_list_push(struct arch_self self, const void *map, const uint16_t *offset,
				  const struct arch_list *list, void *object)
{
	uintptr_t *word = arch_word(self, map, *offset), first = *word, address = (uintptr_t)object;

	if ((first ^ address) - 1 >= list->slab_mask ||
	    (address & list->slab_mask) * list->reciprocal >= list->reciprocal)
		return false;
	uintptr_t link = address + list->link;

	__atomic_store_n((uintptr_t *)link, first ^ link ^ list->secret, __ATOMIC_RELAXED);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	__atomic_store_n(word, address, __ATOMIC_RELEASE);
	return true;
}

static inline uintptr_t arch_peek(struct arch_self self, const void *map, uintptr_t offset)
{
	return *arch_word(self, map, offset);
}

static inline bool arch_replace(struct arch_self self, const void *map, uintptr_t offset, uintptr_t expected,
				uintptr_t desired)
{
	uintptr_t *word = arch_word(self, map, offset);

	if (*word != expected)
		return false;
	__atomic_store_n(word, desired, __ATOMIC_RELEASE);
	return true;
}

static inline bool arch_add(struct arch_self self, const void *map, uintptr_t offset, uint64_t amount)
{
	uintptr_t *word = arch_word(self, map, offset);

	__atomic_store_n(word, *word + amount, __ATOMIC_RELAXED);
	return true;
}

static inline void arch_init_thread_pointer(void *pointer)
{
	(void)pointer;
}

static inline void arch_pause(void)
{
}

static inline void arch_demote(const void *line)
{
	(void)line;
}

static inline arch_lanes arch_below(uint64_t random, uint64_t more, size_t count)
{
	arch_lanes lanes = (arch_lanes)(arch_lanes_bits){random, more};

	for (unsigned i = 0; i < ARCH_LANES; i++)
		lanes[i] = (uint16_t)((uint32_t)lanes[i] * (uint16_t)(count - i) >> 16);
	return lanes;
}

#endif
