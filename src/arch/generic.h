/* SPDX-License-Identifier: MIT */
/*
 * Any architecture without asm here: the vCPU is the thread (a slot of its own), so that the same words
 * can be changed by plain C.  The compiler must keep the order of the stores that push makes, because fork
 * may copy the memory between any two of them.
 */
#ifndef CPUSLAB_ARCH_GENERIC_H
#define CPUSLAB_ARCH_GENERIC_H

#define ARCH_HAS_RSEQ 0

static inline uint32_t arch_id(struct arch_self self)
{
	return *(const volatile uint32_t *)((const char *)__builtin_thread_pointer() + self.id);
}

static inline uintptr_t *arch_word(struct arch_self self, const void *map, uintptr_t offset)
{
	const uintptr_t *table = (const uintptr_t *)((const char *)map - ARCH_TABLE_BYTES);

	return (uintptr_t *)(__atomic_load_n(&table[arch_id(self)], __ATOMIC_ACQUIRE) + offset);
}

static inline void *arch_pop(struct arch_self self, const void *map, const uint16_t *offset)
{
	uintptr_t *word = arch_word(self, map, *offset);
	void *object = *(void **)*word;

	if (object)
		__atomic_store_n(word, *word - sizeof(void *), __ATOMIC_RELAXED);
	return object;
}

static inline bool arch_push(struct arch_self self, const void *map, const uint16_t *offset, void *object)
{
	uintptr_t *word = arch_word(self, map, *offset);
	void **top = (void **)*word;

	if (*top == object || ((uintptr_t)top[1] & 1))
		return false;
	__atomic_store_n(&top[1], object, __ATOMIC_RELAXED);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	__atomic_store_n(word, (uintptr_t)&top[1], __ATOMIC_RELEASE);
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

static inline void arch_add(struct arch_self self, const void *map, uintptr_t offset, uint64_t amount)
{
	uintptr_t *word = arch_word(self, map, offset);

	__atomic_store_n(word, *word + amount, __ATOMIC_RELAXED);
}

static inline void arch_pause(void)
{
}

static inline void arch_demote(const void *line)
{
	(void)line;
}

#endif
