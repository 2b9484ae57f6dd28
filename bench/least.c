/* SPDX-License-Identifier: MIT */
/*
 * least: the least that malloc and free must do, as a yardstick for others.  `--peers cpuslab,least`.
 *
 * Size classes and LIFO order are the library's.  But it serves one thread, which it insists on; it checks
 * nothing, gives nothing back, counts nothing, and its stacks of free objects have no bounds.  The time that
 * a program takes longer with another allocator is what that one does besides, for threads, safety and
 * memory; any time it saves comes from a better order of the objects.
 */
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "malloc/size_class.h"

__attribute__((visibility("default"))) extern const char bench_peer_version[];
const char bench_peer_version[] = CPUSLAB_VERSION;

#define FRONT     __attribute__((visibility("default"), aligned(64)))
#define likely(x) __builtin_expect(!!(x), 1)

enum { PAGE = 4096, SLAB = 64 << 10, STEPS = SIZE_CLASS_SMALL / SIZE_CLASS_STEP + 1 };

static const size_t heap_bytes = 1ul << 36, stack_bytes = 1ul << 28;

/* The last free object of each class; the first entry of each stack is NULL. */
static void **top[SIZE_CLASSES];
static uint16_t class_of_step[STEPS];
static size_t small_limit; /* 0 until it has started */
static char *heap, *fresh; /* nothing has been handed out from here on */
static uint8_t *class_of_page;

/* Reserves address space, which takes no memory until it is touched. */
static char *reserve(size_t bytes)
{
	void *memory =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

static void start(void)
{
	char *stacks = reserve(SIZE_CLASSES * stack_bytes);

	heap = fresh = reserve(heap_bytes);
	class_of_page = (uint8_t *)reserve(heap_bytes / PAGE);
	if (!heap || !stacks || !class_of_page)
		abort();
	for (unsigned class = 0; class < SIZE_CLASSES; class ++)
		top[class] = (void **)(stacks + class * stack_bytes);
	for (unsigned step = 0; step < STEPS; step++)
		class_of_step[step] = (uint16_t)size_class_index(step * SIZE_CLASS_STEP);
	small_limit = SIZE_CLASS_SMALL + 1;
}

/* Makes a slab of this class: returns its first object, and stacks the others in address order. */
static void *refill(unsigned class)
{
	size_t size = size_class_bytes(class), bytes = size > SLAB ? size : SLAB;
	char *slab = fresh;

	if ((size_t)(slab - heap) + bytes > heap_bytes)
		return NULL;
	fresh += bytes;
	memset(class_of_page + (slab - heap) / PAGE, (int)class, bytes / PAGE);
	for (size_t i = bytes / size; i-- > 1;)
		*++top[class] = slab + i * size;
	return slab;
}

/* Maps memory after a page that records its length. */
static void *map_large(size_t alignment, size_t size)
{
	size_t *length = size <= PTRDIFF_MAX ? (size_t *)(void *)reserve(size + alignment + PAGE) : NULL;

	if (!length)
		return NULL;
	char *object = (char *)(((uintptr_t)length + PAGE + alignment - 1) & -alignment);

	length = (size_t *)(void *)(object - PAGE);
	*length = size;
	return object;
}

static void *alloc_slow(size_t size)
{
	if (!heap)
		start();
	if (size > SIZE_CLASS_MAX)
		return map_large(1, size);
	unsigned class = size_class_index(size);
	void *object = *top[class];

	if (!object)
		return refill(class);
	top[class]--;
	return object;
}

FRONT void *malloc(size_t size)
{
	if (likely(size < small_limit)) {
		unsigned class = class_of_step[(size + SIZE_CLASS_STEP - 1) / SIZE_CLASS_STEP];
		void **last = top[class], *object = *last;

		if (likely(object)) {
			top[class] = last - 1;
			return object;
		}
	}
	return alloc_slow(size);
}

static void free_slow(void *object)
{
	if (object)
		munmap((char *)object - PAGE, *(size_t *)(void *)((char *)object - PAGE) + PAGE);
}

FRONT void free(void *object)
{
	size_t at = (size_t)((char *)object - heap);

	if (likely(at < heap_bytes))
		*++top[class_of_page[at / PAGE]] = object;
	else
		free_slow(object);
}

FRONT size_t malloc_usable_size(void *object)
{
	size_t at = (size_t)((char *)object - heap);

	if (at < heap_bytes)
		return size_class_bytes(class_of_page[at / PAGE]);
	return object ? *(size_t *)(void *)((char *)object - PAGE) : 0;
}

FRONT void *calloc(size_t count, size_t size)
{
	size_t bytes;
	void *object = __builtin_mul_overflow(count, size, &bytes) ? NULL : malloc(bytes);

	return object && bytes <= SIZE_CLASS_MAX ? memset(object, 0, bytes) : object;
}

FRONT void *realloc(void *object, size_t size)
{
	size_t usable = malloc_usable_size(object);

	if (object && size <= usable && size >= usable / 2)
		return object;
	void *moved = malloc(size);

	if (!moved || !object)
		return moved;
	memcpy(moved, object, size < usable ? size : usable);
	free(object);
	return moved;
}

FRONT void *memalign(size_t alignment, size_t size)
{
	return alignment <= SIZE_CLASS_STEP ? malloc(size) : map_large(alignment, size);
}

FRONT void *aligned_alloc(size_t alignment, size_t size)
{
	return memalign(alignment, size);
}

FRONT int posix_memalign(void **object, size_t alignment, size_t size)
{
	*object = memalign(alignment, size);
	return *object ? 0 : ENOMEM;
}

FRONT int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
			 void *argument)
{
	static const char text[] = "least: an allocator for one thread\n";

	(void)thread, (void)attributes, (void)run, (void)argument;
	if (write(STDERR_FILENO, text, sizeof(text) - 1) < 0)
		abort();
	abort();
}
