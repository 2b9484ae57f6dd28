/* SPDX-License-Identifier: MIT */
#include "lock_kinds.h"

#include "launch.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOINLINE __attribute__((noinline))

static struct {
	struct cpuslab_pagelock page OWN_LINES;
	/* A page lock in the first byte of a word of flags, as in the kernel. */
	union {
		struct cpuslab_pagelock lock;
		volatile uint64_t flags;
	} word OWN_LINES;
	struct cpuslab_spinlock spin OWN_LINES;
	struct cpuslab_spinlock demoting OWN_LINES;
	struct cpuslab_mcs mcs OWN_LINES;
	pthread_mutex_t mutex OWN_LINES;
	pthread_spinlock_t pthread_spin OWN_LINES;
	uint32_t bare OWN_LINES;
	uintptr_t nsync[8] OWN_LINES; /* an nsync_mu is two words, and all zero is unlocked */
	uint64_t guarded OWN_LINES;   /* what the contended locks protect */
} locks = {.demoting = CPUSLAB_SPINLOCK_INITIALIZER_DEMOTE, .mutex = PTHREAD_MUTEX_INITIALIZER};

/*
 * Processors first compare the low twelve bits of a load's address with those of earlier stores.  A lock that
 * agrees in them with what it protects would wait for unrelated stores (4K aliasing), which cost a quarter of
 * the turns of two threads: so all of this lies within one such stretch.
 */
_Static_assert(sizeof(locks) <= 4096, "no two of them may agree in their addresses' low twelve bits");

static void (*nsync_lock)(void *), (*nsync_unlock)(void *);
static void (*parking_lot_pairs)(uint64_t), (*parking_lot_lock)(void), (*parking_lot_unlock)(void);
static __thread struct cpuslab_mcs_node node;

static NOINLINE void never(void)
{
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

/* The least that a byte lock with user flags can do, without waking anyone. */
static inline void bare_lock(void)
{
	uint8_t seen = 0;

	if (__builtin_expect(!__atomic_compare_exchange_n((uint8_t *)&locks.bare, &seen, 1, false,
							  __ATOMIC_ACQUIRE, __ATOMIC_RELAXED),
			     0))
		never();
}

static inline void bare_unlock(void)
{
	__atomic_fetch_and((uint8_t *)&locks.bare, (uint8_t)~1, __ATOMIC_RELEASE);
}

/*
 * What the fused unlock replaced in the kernel, whose flags are a word: clear the bit in the word's first
 * byte, then look for waiters in the word.  The load is wider than the preceding store.
 */
static inline void two_step_unlock(void)
{
	__atomic_fetch_and(&locks.word.lock.byte, (uint8_t)~1, __ATOMIC_RELEASE);
	if (__builtin_expect((locks.word.flags & CPUSLAB_PAGELOCK_WAITERS) != 0, 0))
		never();
}

/* The same on a byte: the page lock without the sign flag. */
static inline void two_step_byte_unlock(void)
{
	__atomic_fetch_and(&locks.page.byte, (uint8_t)~1, __ATOMIC_RELEASE);
	if (__builtin_expect(*(volatile uint8_t *)&locks.page.byte & CPUSLAB_PAGELOCK_WAITERS, 0))
		never();
}

static inline void bit_lock(void)
{
	if (__builtin_expect(__atomic_fetch_or(&locks.bare, 1, __ATOMIC_ACQUIRE) & 1, 0))
		never();
}

/* The spinlock without the asymmetric barrier: the word itself says whether a waiter is parked. */
static inline void exchange_lock(void)
{
	uint32_t seen = 0;

	if (__builtin_expect(!__atomic_compare_exchange_n(&locks.bare, &seen, 1, false, __ATOMIC_ACQUIRE,
							  __ATOMIC_RELAXED),
			     0))
		never();
}

static inline void exchange_unlock(void)
{
	if (__builtin_expect(__atomic_exchange_n(&locks.bare, 0, __ATOMIC_RELEASE) != 1, 0))
		never();
}

#define PAIRS_OF(name, lock, unlock)                                                                         \
	static NOINLINE void name##_pairs(uint64_t pairs)                                                    \
	{                                                                                                    \
		for (; pairs > 0; pairs--) {                                                                 \
			lock;                                                                                \
			unlock;                                                                              \
		}                                                                                            \
	}

PAIRS_OF(empty, __atomic_signal_fence(__ATOMIC_SEQ_CST), (void)0)
PAIRS_OF(bare, bare_lock(), bare_unlock())
PAIRS_OF(page, cpuslab_pagelock_lock(&locks.page), cpuslab_pagelock_unlock(&locks.page))
PAIRS_OF(two_step, cpuslab_pagelock_lock(&locks.word.lock), two_step_unlock())
PAIRS_OF(two_step_byte, cpuslab_pagelock_lock(&locks.page), two_step_byte_unlock())
PAIRS_OF(bit, bit_lock(), bare_unlock())
PAIRS_OF(spin, cpuslab_spin_lock(&locks.spin), cpuslab_spin_unlock(&locks.spin))
PAIRS_OF(demoting, cpuslab_spin_lock(&locks.demoting), cpuslab_spin_unlock(&locks.demoting))
PAIRS_OF(exchange, exchange_lock(), exchange_unlock())
PAIRS_OF(mcs, cpuslab_mcs_lock(&locks.mcs, &node), cpuslab_mcs_unlock(&locks.mcs, &node))
PAIRS_OF(mutex, pthread_mutex_lock(&locks.mutex), pthread_mutex_unlock(&locks.mutex))
PAIRS_OF(pthread_spin, pthread_spin_lock(&locks.pthread_spin), pthread_spin_unlock(&locks.pthread_spin))
PAIRS_OF(nsync, nsync_lock(locks.nsync), nsync_unlock(locks.nsync))

#define CALLS_OF(name, lock, unlock)                                                                         \
	static NOINLINE void name##_lock(void)                                                               \
	{                                                                                                    \
		lock;                                                                                        \
	}                                                                                                    \
	static NOINLINE void name##_unlock(void)                                                             \
	{                                                                                                    \
		unlock;                                                                                      \
	}

CALLS_OF(call_page, cpuslab_pagelock_lock(&locks.page), cpuslab_pagelock_unlock(&locks.page))
CALLS_OF(call_spin, cpuslab_spin_lock(&locks.spin), cpuslab_spin_unlock(&locks.spin))
CALLS_OF(call_mcs, cpuslab_mcs_lock(&locks.mcs, &node), cpuslab_mcs_unlock(&locks.mcs, &node))
CALLS_OF(call_mutex, pthread_mutex_lock(&locks.mutex), pthread_mutex_unlock(&locks.mutex))
CALLS_OF(call_pthread_spin, pthread_spin_lock(&locks.pthread_spin), pthread_spin_unlock(&locks.pthread_spin))
CALLS_OF(call_nsync, nsync_lock(locks.nsync), nsync_unlock(locks.nsync))
CALLS_OF(call_parking_lot, parking_lot_lock(), parking_lot_unlock())

struct lock_kind lock_kinds[LOCK_KINDS] = {
#define LOCK_KIND(number, name, class, text) [number] = {name, class, NULL, NULL, NULL},
#include "lock_kinds.def"
#undef LOCK_KIND
};

static void set_kind(enum lock_kind_number number, void (*pairs)(uint64_t), void (*lock)(void),
		     void (*unlock)(void))
{
	lock_kinds[number].pairs = pairs;
	lock_kinds[number].lock = lock;
	lock_kinds[number].unlock = unlock;
}

static void find_nsync(void)
{
	void *library = dlopen("libnsync.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!library)
		return;
	*(void **)&nsync_lock = dlsym(library, "nsync_mu_lock");
	*(void **)&nsync_unlock = dlsym(library, "nsync_mu_unlock");
	if (nsync_lock && nsync_unlock)
		set_kind(KIND_NSYNC, nsync_pairs, call_nsync_lock, call_nsync_unlock);
}

static void find_parking_lot(void)
{
	char path[PATH_MAX];
	const char *given = getenv("CPUSLAB_PARKING_LOT");
	snprintf(path, sizeof(path), "%s", given ? given : "");
	if (!given && !launch_beside("peers/libpeer_parking_lot.so", path))
		return;
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library)
		return;
	*(void **)&parking_lot_pairs = dlsym(library, "cpuslab_peer_pairs");
	*(void **)&parking_lot_lock = dlsym(library, "cpuslab_peer_lock");
	*(void **)&parking_lot_unlock = dlsym(library, "cpuslab_peer_unlock");
	if (parking_lot_pairs && parking_lot_lock && parking_lot_unlock)
		set_kind(KIND_PARKING_LOT, parking_lot_pairs, call_parking_lot_lock, call_parking_lot_unlock);
}

void lock_kinds_find(void)
{
	set_kind(KIND_EMPTY, empty_pairs, NULL, NULL);
	set_kind(KIND_BARE, bare_pairs, NULL, NULL);
	set_kind(KIND_PAGE, page_pairs, call_page_lock, call_page_unlock);
	set_kind(KIND_TWO_STEP, two_step_pairs, NULL, NULL);
	set_kind(KIND_TWO_STEP_BYTE, two_step_byte_pairs, NULL, NULL);
	set_kind(KIND_BIT, bit_pairs, NULL, NULL);
	set_kind(KIND_SPIN, spin_pairs, call_spin_lock, call_spin_unlock);
	set_kind(KIND_DEMOTING, demoting_pairs, NULL, NULL);
	set_kind(KIND_EXCHANGE, exchange_pairs, NULL, NULL);
	set_kind(KIND_MCS, mcs_pairs, call_mcs_lock, call_mcs_unlock);
	set_kind(KIND_MUTEX, mutex_pairs, call_mutex_lock, call_mutex_unlock);
	set_kind(KIND_PTHREAD_SPIN, pthread_spin_pairs, call_pthread_spin_lock, call_pthread_spin_unlock);
	find_nsync();
	find_parking_lot();
	pthread_spin_init(&locks.pthread_spin, PTHREAD_PROCESS_PRIVATE);
}

bool lock_kinds_demote(void)
{
#if defined(__x86_64__)
	unsigned a, b, c = 0, d;
	return __get_cpuid_count(7, 0, &a, &b, &c, &d) && ((c >> 25) & 1);
#else
	return false;
#endif
}

struct cpuslab_spinlock *lock_kinds_spin(bool demoting)
{
	return demoting ? &locks.demoting : &locks.spin;
}

uint64_t *lock_kinds_guarded(void)
{
	return &locks.guarded;
}
