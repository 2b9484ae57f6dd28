// SPDX-License-Identifier: MIT
// The C++ wrappers with the standard library's own guards, and against its clocks.
#include "check.h"

#include <cpuslab/lock.hpp>

#include <limits>
#include <mutex>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

// Usable by whatever runs before main, since nothing runs to initialize them.
static cpuslab::spinlock spin;
static cpuslab::spinlock demoting{cpuslab::spinlock::demoting{}};
static cpuslab::pagelock page;
static cpuslab::mcs mcs;
static unsigned long turns;

static_assert(sizeof(cpuslab::pagelock) == 1 && sizeof(cpuslab::spinlock) == 4);

static void take_turns(unsigned long rounds)
{
	for (unsigned long i = 0; i < rounds; i++) {
		std::scoped_lock both(spin, page); // deadlock-free by trying
		std::lock_guard<cpuslab::spinlock> third(demoting);
		cpuslab::mcs::guard fourth(mcs);
		turns++;
	}
}

// For ever, as far as a test can tell: until the lock is free.
template <class Duration> static void wait_for_ever()
{
	std::unique_lock<cpuslab::pagelock> timed(page, Duration::max());
	CHECK(timed.owns_lock());
}

template <class Duration> using wall = std::chrono::time_point<std::chrono::system_clock, Duration>;

template <class Point> static void wait_until(Point point)
{
	std::unique_lock<cpuslab::pagelock> timed(page, point);
	CHECK(timed.owns_lock());
}

template <class Point> static bool is_past(Point point)
{
	return !std::unique_lock<cpuslab::pagelock>(page, point).owns_lock();
}

template <class Rep, class Period> static void wait_in_vain()
{
	constexpr auto wait = std::chrono::duration<Rep, Period>(20 * Period::den / Period::num / 1000);
	auto before = std::chrono::steady_clock::now();
	std::unique_lock<cpuslab::pagelock> timed(page, wait);
	CHECK(!timed.owns_lock() && std::chrono::steady_clock::now() - before >= 20ms);
}

using years = std::chrono::duration<std::int64_t, std::ratio<31556952>>;
using samples = std::chrono::duration<std::int64_t, std::ratio<1, 44100>>;
using picoseconds = std::chrono::duration<std::int64_t, std::pico>;
using femtoseconds = std::chrono::duration<std::int64_t, std::femto>;
using unsigned_hours = std::chrono::duration<std::uint64_t, std::ratio<3600>>;

// Those too that no other duration which they are compared with could hold.
static void any_duration()
{
	std::unique_lock<cpuslab::pagelock> held(page);
	std::thread([] {
		wait_in_vain<std::int64_t, std::ratio<1, 44100>>();
		wait_in_vain<std::int64_t, std::pico>();
		wait_in_vain<std::int64_t, std::femto>();
		wait_in_vain<double, std::femto>();
		std::unique_lock<cpuslab::pagelock> timed(page, std::defer_lock);
		CHECK(!timed.try_lock_for(years::min()) && !timed.try_lock_for(femtoseconds::min()));
		CHECK(!timed.try_lock_for(
			std::chrono::duration<double>(std::numeric_limits<double>::quiet_NaN())));
		CHECK(is_past(wall<years>::min()) && is_past(wall<std::chrono::hours>::min()));
		CHECK(is_past(wall<picoseconds>::min()) && is_past(wall<picoseconds>::max()));
	}).join();

	std::vector<std::thread> waiters;
	waiters.emplace_back(wait_for_ever<std::chrono::hours>);
	waiters.emplace_back(wait_for_ever<unsigned_hours>);
	waiters.emplace_back(wait_for_ever<years>);
	waiters.emplace_back(wait_for_ever<samples>);
	waiters.emplace_back(wait_for_ever<picoseconds>);
	waiters.emplace_back(wait_for_ever<femtoseconds>);
	waiters.emplace_back(wait_for_ever<std::chrono::duration<float, std::atto>>);
	waiters.emplace_back(wait_until<wall<std::chrono::hours>>, wall<std::chrono::hours>::max());
	waiters.emplace_back(wait_until<wall<years>>, wall<years>::max());
	waiters.emplace_back(wait_until<wall<samples>>, wall<samples>::max());
	waiters.emplace_back(wait_until<wall<std::chrono::duration<double>>>,
			     wall<std::chrono::duration<double>>::max());
	std::this_thread::sleep_for(5ms);
	held.unlock();
	for (auto &waiter : waiters)
		waiter.join();
}

int main()
{
	check_watchdog(100);
	{
		std::unique_lock<cpuslab::pagelock> held(page);
		CHECK(held.owns_lock() && page.is_locked() && !page.try_lock());

		// Another thread's view of the deadlines; none may come early.
		std::thread([] {
			auto before = std::chrono::steady_clock::now();
			std::unique_lock<cpuslab::pagelock> timed(page, 20ms);
			CHECK(!timed.owns_lock() && std::chrono::steady_clock::now() - before >= 20ms);
			auto deadline = std::chrono::system_clock::now() + 20ms;
			CHECK(!timed.try_lock_until(deadline) &&
			      std::chrono::system_clock::now() >= deadline);
			auto steady = std::chrono::steady_clock::now() + 20ms;
			CHECK(!timed.try_lock_until(steady) && std::chrono::steady_clock::now() >= steady);
			CHECK(!timed.try_lock_for(-1h) && !timed.try_lock_for(0s));
			CHECK(!timed.try_lock_until(std::chrono::steady_clock::time_point::min()));
		}).join();

		std::thread waiter([] {
			std::unique_lock<cpuslab::pagelock> timed(page, std::chrono::hours::max());
			CHECK(timed.owns_lock());
		});
		std::thread watcher([] { page.wait_unlocked(); });
		std::this_thread::sleep_for(5ms);
		held.unlock();
		waiter.join();
		watcher.join();
	}
	any_duration();
	page.lock();
	page.unlock_flip(0x02);
	CHECK(page.flags() == 0x02 && !page.is_locked() && page.try_lock_for(0s));
	page.unlock();
	page.flip_flags(0x02);
	page.set_flags(0x04);
	page.wait(0x04, 0);
	page.clear_flags(0x04);
	CHECK(page.flags() == 0);

	unsigned long rounds = check_rounds(2000, 200000, 100);
	std::vector<std::thread> threads;
	for (int i = 0; i < 6; i++)
		threads.emplace_back(take_turns, rounds);
	for (auto &thread : threads)
		thread.join();
	CHECK(turns == 6 * rounds && !spin.is_locked() && !page.is_locked() && !mcs.is_locked());
	CHECK(page.native_handle()->byte == 0);
	return 0;
}
