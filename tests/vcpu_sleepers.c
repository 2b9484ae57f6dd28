/* SPDX-License-Identifier: MIT */
/*
 * vcpu_sleepers: threads that sleep, each with a vCPU of its own, keep nothing for long: the calls of another
 * thread drain their areas from outside.  With thread slots, and with ids of the kernel's, which keeps one
 * for each sleeping thread while there are few: here each thread's id is forced.  (Where libc registers no
 * restartable sequences, slots of sleeping threads cannot be drained: vcpu.h.)
 */
#include "check.h"
#include "moved_clock.h"

#include "magazine/magazine.h"
#include "os/os.h"

enum { SLEEPERS = 48, OBJECTS = 2000, MIB = 1 << 20 };

static __thread uint32_t forced_id;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t end = PTHREAD_COND_INITIALIZER;
static unsigned asleep;
static bool over;

static void use_memory(uint64_t random)
{
	static void *objects[OBJECTS]; /* with the lock */

	for (size_t i = 0; i < 4 * OBJECTS; i++) {
		size_t size = 16 + check_below(&random, 2000), at = i % OBJECTS;

		free(objects[at]);
		CHECK((objects[at] = malloc(size)));
		memset(objects[at], 1, size);
	}
	for (size_t i = 0; i < OBJECTS; i++) {
		free(objects[i]);
		objects[i] = NULL;
	}
}

static void *sleeper(void *number)
{
	forced_id = (uint32_t)(uintptr_t)number;
	CHECK(pthread_mutex_lock(&turn) == 0);
	use_memory((uintptr_t)number);
	__atomic_add_fetch(&asleep, 1, __ATOMIC_SEQ_CST);
	while (!over)
		CHECK(pthread_cond_wait(&end, &turn) == 0);
	/* It has its vCPU still. */
	use_memory((uintptr_t)number);
	CHECK(pthread_mutex_unlock(&turn) == 0);
	return NULL;
}

/* Words and spares of malloc's caches that hold anything, on the vCPUs of threads that sleep. */
static unsigned held(void)
{
	unsigned count = 0;

	for (unsigned id = 1; id < vcpu_ids(); id++)
		for (unsigned number = 0; number < magazine_caches(); number++) {
			const uintptr_t *word = vcpu_word(id, number);

			if (word && magazine_cache_number(number) && id != arch_id(vcpu_self))
				count += *word != vcpu_void || word[VCPU_ROW];
		}
	return count;
}

/* Tries to close a vCPU of another thread. */
static void *close_other(void *id)
{
	bool closed = vcpu_close((unsigned)(uintptr_t)id);

	if (closed)
		vcpu_reopen((unsigned)(uintptr_t)id);
	return closed ? &over : NULL;
}

static bool can_be_closed(uintptr_t id)
{
	pthread_t other;
	void *closed;

	CHECK(pthread_create(&other, NULL, close_other, (void *)id) == 0);
	CHECK(pthread_join(other, &closed) == 0);
	return closed;
}

/* While a child of vfork has the caller's slot, without a registration, nobody closes it. */
static void hand_slot(void)
{
	uint32_t id = arch_id(vcpu_self);

	CHECK(can_be_closed(id));
	struct vcpu_handing handing = vcpu_before_vfork(), nested = vcpu_before_vfork();

	vcpu_end_handing(nested, false);
	CHECK(!can_be_closed(id));
	vcpu_end_handing(handing, false);
	CHECK(can_be_closed(id));
}

int main(void)
{
	pthread_t threads[SLEEPERS];
	bool slots = cpuslab_vcpu_mode() == CPUSLAB_VCPU_THREAD_SLOT;

	check_watchdog(60);
	if (!&__rseq_size || !__rseq_size)
		check_skip("libc registers no restartable sequences");
	CHECK(malloc(1));
	if (!slots) {
		if (vcpu_ids() <= SLEEPERS)
			check_skip("%u ids are too few", vcpu_ids());
		vcpu_self.id = (intptr_t)((char *)&forced_id - (char *)__builtin_thread_pointer());
	}
	for (size_t i = 0; i < SLEEPERS; i++)
		CHECK(pthread_create(&threads[i], NULL, sleeper, (void *)(i + 1)) == 0);
	while (__atomic_load_n(&asleep, __ATOMIC_SEQ_CST) < SLEEPERS)
		usleep(1000);
	CHECK(held() > SLEEPERS, "%u words hold something", held());
	for (unsigned i = 0; i < 80; i++) {
		milliseconds += 100;
		free(malloc(50000));
		free(malloc(100 + i * 24));
	}
	CHECK(held() == 0, "%u words hold something", held());
	CHECK(check_resident() < 8 * MIB, "%zu bytes", check_resident());

	if (slots)
		hand_slot();
	CHECK(pthread_mutex_lock(&turn) == 0);
	over = true;
	CHECK(pthread_cond_broadcast(&end) == 0);
	CHECK(pthread_mutex_unlock(&turn) == 0);
	for (size_t i = 0; i < SLEEPERS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	return 0;
}
