// SPDX-License-Identifier: MIT
//
// The locks' own sources under relacy: their atomics (atomics.h) and futexes are simulated, so that every
// memory order in them is put to the test, weaker processors than this one included.  Under each lock stands
// a plain variable: an order that is too weak is a data race there; a lost wakeup is a deadlock.
//
// The one thing that relacy cannot simulate is the asymmetric barrier of the spinlock: here its waiters poll,
// as where the system has none (tests/models/spinlock.pml has the barrier).
#include <relacy/relacy.hpp>
#undef new

#include "atomics.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

extern "C" {
void subject_prepare(void);
void subject_page_lock(int timed_out_first);
void subject_page_unlock(int flip);
void subject_page_wait(void);
int subject_page_byte(void);
int subject_mcs_take(int index, int only_try);
void subject_mcs_release(int index);
void subject_spin_lock(void);
void subject_spin_unlock(void);
int os_futex_wait(uint32_t *word, uint32_t expected, const void *relative);
int os_futex_wait_until(uint32_t *word, uint32_t expected, const void *deadline);
int os_futex_wake(uint32_t *word, int count);
int os_barrier_all_threads(void);
int os_wipe_on_fork(void *address, size_t bytes);
uint32_t os_process_id(void);
void os_nap(long nanoseconds);
}

// ---- a simulated atomic for each address that the locks touch

namespace
{

// relacy's futex wants an atomic<int>; pointers get an atomic of their own size.  No memory is allocated:
// relacy watches that too.
struct cell {
	const volatile void *address;
	uintptr_t mirrored; // what the simulation put into real memory last
	rl::atomic<int> *number;
	rl::atomic<uintptr_t> *pointer;
	alignas(16) char storage[sizeof(rl::atomic<uintptr_t>)];
};

enum { CELLS = 512 };
cell cells[CELLS];
int cell_count;

uintptr_t real(const volatile void *address, size_t size)
{
	uintptr_t value = 0;
	memcpy(&value, const_cast<const void *>(address), size);
	return value;
}

// The latest cell of an address: where memory was used again, older ones may still be waited on.
cell *find_cell(const volatile void *address)
{
	for (int i = cell_count - 1; i >= 0; i--)
		if (cells[i].address == address)
			return &cells[i];
	return nullptr;
}

// A difference to real memory is a plain store of the locks' own, which initializes a new object in old
// memory.
cell &cell_of(const volatile void *address, size_t size)
{
	rl::preemption_disabler together(rl::ctx());
	cell *found = find_cell(address);
	uintptr_t value = real(address, size);
	if (found && found->mirrored == value)
		return *found;
	if (cell_count == CELLS)
		abort();
	cell &made = cells[cell_count];
	made.address = address;
	made.mirrored = value;
	made.number = nullptr;
	made.pointer = nullptr;
	if (size == sizeof(uintptr_t)) {
		made.pointer = ::new (made.storage) rl::atomic<uintptr_t>();
		made.pointer->store(value, rl::mo_relaxed, $);
	} else {
		made.number = ::new (made.storage) rl::atomic<int>();
		made.number->store(static_cast<int>(value), rl::mo_relaxed, $);
	}
	cell_count++;
	return made;
}

void mirror(cell &of, volatile void *address, size_t size, uintptr_t value)
{
	if (size < sizeof value)
		value &= (uintptr_t{1} << (8 * size)) - 1;
	memcpy(const_cast<void *>(address), &value, size);
	of.mirrored = value;
}

rl::memory_order order_of(int order)
{
	static const rl::memory_order orders[] = {rl::mo_relaxed, rl::mo_consume, rl::mo_acquire,
						  rl::mo_release, rl::mo_acq_rel, rl::mo_seq_cst};
	return orders[order];
}

void forget_cells()
{
	for (int i = 0; i < cell_count; i++) {
		if (cells[i].number)
			cells[i].number->~atomic();
		else
			cells[i].pointer->~atomic();
	}
	cell_count = 0;
}

} // namespace

#define ON(of, operation)                                                                                    \
	((of).pointer ? static_cast<uintptr_t>((of).pointer->operation)                                      \
		      : static_cast<uintptr_t>((of).number->operation))

uintptr_t relacy_load(const volatile void *address, size_t size, int order)
{
	cell &of = cell_of(address, size);
	return ON(of, load(order_of(order), $));
}

void relacy_store(volatile void *address, size_t size, uintptr_t value, int order)
{
	cell &of = cell_of(address, size);
	if (of.pointer)
		of.pointer->store(value, order_of(order), $);
	else
		of.number->store(static_cast<int>(value), order_of(order), $);
	mirror(of, address, size, value);
}

uintptr_t relacy_exchange(volatile void *address, size_t size, uintptr_t value, int order)
{
	cell &of = cell_of(address, size);
	uintptr_t before = of.pointer ? of.pointer->exchange(value, order_of(order), $)
				      : static_cast<uintptr_t>(of.number->exchange(static_cast<int>(value),
										   order_of(order), $));
	mirror(of, address, size, value);
	return before;
}

bool relacy_compare_exchange(volatile void *address, size_t size, void *expected, uintptr_t desired,
			     bool weak, int success, int failure)
{
	cell &of = cell_of(address, size);
	uintptr_t value = real(expected, size);
	bool done;
	if (of.pointer) {
		done = of.pointer->compare_exchange_strong(value, desired, order_of(success), $,
							   order_of(failure), $);
	} else {
		int number = static_cast<int>(value), wanted = static_cast<int>(desired);
		done = weak ? of.number->compare_exchange_weak(number, wanted, order_of(success), $,
							       order_of(failure), $)
			    : of.number->compare_exchange_strong(number, wanted, order_of(success), $,
								 order_of(failure), $);
		value = static_cast<uintptr_t>(number);
	}
	if (done)
		mirror(of, address, size, desired);
	else
		memcpy(expected, &value, size);
	return done;
}

#define FETCH(name, operator)                                                                                \
	uintptr_t relacy_fetch_##name(volatile void *address, size_t size, uintptr_t value, int order)       \
	{                                                                                                    \
		cell &of = cell_of(address, size);                                                           \
		/* The simulated number is an int; what is cut off here is cut off in memory too. */         \
		uintptr_t mask = (uintptr_t{1} << (8 * size)) - 1;                                           \
		int before = of.number->fetch_##name(static_cast<int>(value & mask), order_of(order), $);    \
		mirror(of, address, size, static_cast<uintptr_t>(before) operator(value &mask));             \
		return static_cast<uintptr_t>(before);                                                       \
	}

FETCH(add, +)
FETCH(or, |)
FETCH(and, &)
FETCH(xor, ^)

void relacy_pause(void)
{
	rl::yield(1, $);
}

// ---- the seam to the kernel

int os_futex_wait_until(uint32_t *word, uint32_t expected, const void *deadline)
{
	cell &of = cell_of(word, sizeof *word);
	return rl::rl_int_futex_impl(rl::ctx(), of.number, rl::RL_FUTEX_WAIT, static_cast<int>(expected),
				     static_cast<const timespec *>(deadline), nullptr, 0,
				     $) == rl::RL_ETIMEDOUT
		       ? ETIMEDOUT
		       : 0;
}

// The spinlock's futex is on a word of four atomics, and its naps are on no atomic at all: both end by
// themselves. The mcs lock's is on an atomic of its own.
int os_futex_wait(uint32_t *word, uint32_t expected, const void *relative)
{
	if (relative == nullptr && expected == 1)
		return os_futex_wait_until(word, expected, nullptr);
	rl::yield(1, $);
	return EINTR;
}

int os_futex_wake(uint32_t *word, int count)
{
	cell *found = find_cell(word);
	if (found && found->number)
		rl::rl_int_futex_impl(rl::ctx(), found->number, rl::RL_FUTEX_WAKE, count, nullptr, nullptr, 0,
				      $);
	return 0;
}

int os_barrier_all_threads(void)
{
	return ENOSYS;
}

int os_wipe_on_fork(void *, size_t)
{
	return 0;
}

// Nothing forks here.
uint32_t os_process_id(void)
{
	return 1;
}

void os_nap(long)
{
	rl::yield(1, $);
}

// ---- the tests

template <class Self, int Threads> struct locks_test : rl::test_suite<Self, Threads> {
	rl::var<int> data;

	void before()
	{
		subject_prepare();
		data($) = 0;
	}

	// After each execution, while relacy still knows its atomics.
	void after()
	{
		static_cast<Self *>(this)->check();
		forget_cells();
	}

	void check()
	{
	}

	void touch()
	{
		data($) = data($) + 1;
	}
};

template <int Threads, int Rounds> struct page_test : locks_test<page_test<Threads, Rounds>, Threads> {
	void thread(unsigned index)
	{
		for (int round = 0; round < Rounds; round++) {
			subject_page_lock(index == 0 && round == 0);
			this->touch();
			subject_page_unlock(index == 1);
		}
	}
	void check()
	{
		RL_ASSERT(this->data($) == Threads * Rounds);
		RL_ASSERT((subject_page_byte() & 0x81) == 0);
	}
};

// A watcher sees what the owner did before the unlock that it waited for.
struct watch_test : locks_test<watch_test, 2> {
	rl::atomic<int> taken;

	void before()
	{
		locks_test::before();
		taken($).store(0, rl::mo_relaxed);
	}
	void thread(unsigned index)
	{
		if (index == 0) {
			subject_page_lock(0);
			taken($).store(1, rl::mo_release);
			touch();
			subject_page_unlock(0);
		} else {
			while (taken($).load(rl::mo_acquire) == 0)
				rl::yield(1, $);
			subject_page_wait();
			RL_ASSERT(data($) == 1);
		}
	}
};

template <int Threads, int Rounds> struct mcs_test : locks_test<mcs_test<Threads, Rounds>, Threads> {
	void thread(unsigned index)
	{
		for (int round = 0; round < Rounds; round++)
			if (subject_mcs_take(static_cast<int>(index), index == 2 && round == 0)) {
				this->touch();
				subject_mcs_release(static_cast<int>(index));
			}
	}
};

template <int Threads, int Rounds> struct spin_test : locks_test<spin_test<Threads, Rounds>, Threads> {
	void thread(unsigned)
	{
		for (int round = 0; round < Rounds; round++) {
			subject_spin_lock();
			this->touch();
			subject_spin_unlock();
		}
	}
	void check()
	{
		RL_ASSERT(this->data($) == Threads * Rounds);
	}
};

template <class Test> static bool simulate(const char *name, unsigned long iterations)
{
	rl::test_params params;
	params.search_type = rl::random_scheduler_type;
	params.iteration_count = iterations;
	params.execution_depth_limit = 20000;
	bool passed = rl::simulate<Test>(params);
	printf("%s: %lu executions, %s\n", name, iterations, passed ? "passed" : "FAILED");
	return passed;
}

int main(int argc, char **argv)
{
	unsigned long iterations = argc > 1 ? strtoul(argv[1], nullptr, 10) : 10000;
	bool passed = true;

	passed &= simulate<page_test<2, 2>>("pagelock, 2 threads", iterations);
	passed &= simulate<page_test<3, 2>>("pagelock, 3 threads", iterations);
	passed &= simulate<watch_test>("pagelock, watcher", iterations);
	passed &= simulate<mcs_test<3, 2>>("mcs", iterations);
	passed &= simulate<spin_test<3, 2>>("spinlock", iterations);
	return passed ? 0 : 1;
}
