/* SPDX-License-Identifier: MIT */
/*
 * rseq_taken: programs that take libc's registration for restartable sequences away under the library, or put
 * one of their own in its place.  Their threads allocate on, beside others.
 *
 *   rseq_taken one        one thread of several
 *   rseq_taken all        every thread
 *   rseq_taken replaced   every other thread registers an area of its own instead
 *   rseq_taken again      threads that give the registration up and take it back at once, over and over
 *   rseq_taken calls      other system calls that programs make through syscall(), which is the library's
 *   rseq_taken foreign    without libc's registration: a thread's first act is to register an area of its own
 */
#include "check.h"

#include <sys/mman.h>
#include <sys/rseq.h>
#include <sys/syscall.h>

enum { THREADS = 5, OBJECTS = 32, UNREGISTER = 1, FIRST_VERSION = 32 };
static const unsigned signature = 0x53053053;

struct area {
	uint32_t cpu_id_start, cpu_id;
	uint64_t section;
	uint32_t flags, node_id, mm_cid, padding;
} __attribute__((aligned(32)));

static __thread struct area own = {.cpu_id = UINT32_MAX};
static const char *variant;
static pthread_barrier_t begin;

static bool is_variant(const char *name)
{
	return strcmp(variant, name) == 0;
}

static void *libc_area(void)
{
	return (char *)__builtin_thread_pointer() + __rseq_offset;
}

static unsigned libc_bytes(void)
{
	return __rseq_size > FIRST_VERSION ? __rseq_size : FIRST_VERSION;
}

static void give_up(void)
{
	CHECK(syscall(SYS_rseq, libc_area(), libc_bytes(), UNREGISTER, signature) == 0);
}

static void take(void *area, unsigned bytes)
{
	CHECK(syscall(SYS_rseq, area, bytes, 0, signature) == 0);
}

static void churn(unsigned long tag, unsigned turns)
{
	unsigned long *objects[OBJECTS] = {0};
	for (unsigned long i = 0; i < turns; i++) {
		unsigned long k = (i * 7 + tag) % OBJECTS;
		if (objects[k])
			CHECK(*objects[k] == (tag ^ k), "an object that has two owners");
		free(objects[k]);
		objects[k] = malloc(64);
		CHECK(objects[k]);
		*objects[k] = tag ^ k;
	}
	for (int k = 0; k < OBJECTS; k++)
		free(objects[k]);
}

static void *work(void *argument)
{
	uintptr_t number = (uintptr_t)argument;
	bool chosen = is_variant("one") ? number == 1 : is_variant("replaced") ? number % 2 : true;
	unsigned long rounds = check_rounds(100, 5000, 3);
	if (!is_variant("foreign"))
		churn(number << 8, 1000);
	else if (syscall(SYS_rseq, &own, sizeof own, 0, signature) != 0)
		CHECK(errno == EINVAL || errno == EBUSY); /* the library was first */
	pthread_barrier_wait(&begin);
	if (chosen && !is_variant("foreign"))
		give_up();
	if (chosen && is_variant("replaced"))
		take(&own, sizeof own);
	for (unsigned long round = 0; round < rounds; round++) {
		churn(number << 8, 1000);
		free(calloc(1, 1 << 20));
		if (is_variant("again")) {
			take(libc_area(), libc_bytes());
			churn(number << 8, 500);
			give_up();
		}
	}
	pthread_barrier_wait(&begin);
	return NULL;
}

/* Six arguments arrive, and errors come back; in a constructor too. */
__attribute__((constructor)) static void check_calls(void)
{
	errno = 0;
	CHECK(syscall(SYS_getpid) == getpid() && !errno);
	CHECK(syscall(SYS_close, -1) == -1 && errno == EBADF);
	int file = open("/proc/self/exe", O_RDONLY);
	char *start = (char *)syscall(SYS_mmap, NULL, 4096, PROT_READ, MAP_PRIVATE, file, 0),
	     *second = (char *)syscall(SYS_mmap, NULL, 4096, PROT_READ, MAP_PRIVATE, file, 4096);
	char bytes[4096];
	CHECK(file >= 0 && start != MAP_FAILED && second != MAP_FAILED);
	CHECK(memcmp(start, "\177ELF", 4) == 0);
	CHECK(pread(file, bytes, sizeof bytes, 4096) == sizeof bytes &&
	      memcmp(second, bytes, sizeof bytes) == 0);
	CHECK(munmap(start, 4096) == 0 && munmap(second, 4096) == 0 && close(file) == 0);
	/* What the kernel refuses is refused. */
	CHECK(syscall(SYS_rseq, &own, sizeof own, UNREGISTER, signature) == -1 && errno == EINVAL);
}

int main(int argc, char **argv)
{
	variant = argc > 1 ? argv[1] : "one";
	if (is_variant("calls")) {
		check_calls();
		return 0;
	}
	bool registered = __rseq_size > 0;
	check_watchdog(100);
	if (registered == is_variant("foreign"))
		check_skip("with libc's registration, or without");
	CHECK(pthread_barrier_init(&begin, NULL, THREADS) == 0);
	check_threads(THREADS, work);
	printf("%s: %s\n", check_mode(), variant);
	return 0;
}
