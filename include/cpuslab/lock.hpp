// SPDX-License-Identifier: MIT
//
// The locks of <cpuslab/lock.h> for C++: spinlock is Lockable, pagelock is TimedLockable, so that
// std::lock_guard, std::unique_lock and std::scoped_lock work.  mcs has a guard of its own, since its holder
// must supply a node.  Nothing here throws or allocates; all of it is constant-initialized.
#ifndef CPUSLAB_LOCK_HPP
#define CPUSLAB_LOCK_HPP

#include <cpuslab/lock.h>

#include <chrono>
#include <time.h>

namespace cpuslab
{

class CPUSLAB_CAPABILITY("spinlock") spinlock
{
      public:
	constexpr spinlock() noexcept = default;
	// For locks that mostly migrate between CPUs: unlock also gives the cache line away.
	struct demoting {
	};
	constexpr explicit spinlock(demoting) noexcept : lock_(CPUSLAB_SPINLOCK_INITIALIZER_DEMOTE)
	{
	}
	spinlock(const spinlock &) = delete;
	spinlock &operator=(const spinlock &) = delete;

	void lock() noexcept CPUSLAB_ACQUIRE() CPUSLAB_IS_A_LOCK
	{
		cpuslab_spin_lock(&lock_);
	}
	bool try_lock() noexcept CPUSLAB_TRY_ACQUIRE(true) CPUSLAB_IS_A_LOCK
	{
		return cpuslab_spin_trylock(&lock_);
	}
	void unlock() noexcept CPUSLAB_RELEASE() CPUSLAB_IS_A_LOCK
	{
		cpuslab_spin_unlock(&lock_);
	}
	bool is_locked() const noexcept
	{
		return cpuslab_spin_is_locked(&lock_);
	}
	using native_handle_type = cpuslab_spinlock *;
	native_handle_type native_handle() noexcept
	{
		return &lock_;
	}

      private:
	cpuslab_spinlock lock_ = CPUSLAB_SPINLOCK_INITIALIZER;
};

class CPUSLAB_CAPABILITY("pagelock") pagelock
{
      public:
	constexpr pagelock() noexcept = default;
	// Unlocked, with these user flags set.
	constexpr explicit pagelock(std::uint8_t flags) noexcept
	    : lock_{static_cast<std::uint8_t>(flags & CPUSLAB_PAGELOCK_FLAGS)}
	{
	}
	pagelock(const pagelock &) = delete;
	pagelock &operator=(const pagelock &) = delete;

	void lock() noexcept CPUSLAB_ACQUIRE() CPUSLAB_IS_A_LOCK
	{
		cpuslab_pagelock_lock(&lock_);
	}
	bool try_lock() noexcept CPUSLAB_TRY_ACQUIRE(true) CPUSLAB_IS_A_LOCK
	{
		return cpuslab_pagelock_trylock(&lock_);
	}
	template <class Rep, class Period>
	bool try_lock_for(const std::chrono::duration<Rep, Period> &duration)
		CPUSLAB_TRY_ACQUIRE(true) CPUSLAB_IS_A_LOCK
	{
		return lock_within(bounded(duration));
	}
	template <class Clock, class Duration>
	bool try_lock_until(const std::chrono::time_point<Clock, Duration> &deadline)
		CPUSLAB_TRY_ACQUIRE(true) CPUSLAB_IS_A_LOCK
	{
		// A clock other than the lock's may be set, or run at another rate: read it again after
		// each wait.
		for (;;) {
			std::chrono::nanoseconds left = left_until(deadline);
			if (lock_within(left))
				return true;
			if (left == left.zero() || left_until(deadline) == left.zero())
				return false;
		}
	}
	void unlock() noexcept CPUSLAB_RELEASE() CPUSLAB_IS_A_LOCK
	{
		cpuslab_pagelock_unlock(&lock_);
	}
	// Unlocks and flips user flags in one atomic operation.
	void unlock_flip(std::uint8_t flags) noexcept CPUSLAB_RELEASE() CPUSLAB_IS_A_LOCK
	{
		cpuslab_pagelock_unlock_flip(&lock_, flags);
	}
	bool is_locked() const noexcept
	{
		return cpuslab_pagelock_is_locked(&lock_);
	}
	std::uint8_t flags() const noexcept
	{
		return cpuslab_pagelock_flags(&lock_);
	}
	void set_flags(std::uint8_t flags) noexcept
	{
		cpuslab_pagelock_set_flags(&lock_, flags);
	}
	void clear_flags(std::uint8_t flags) noexcept
	{
		cpuslab_pagelock_clear_flags(&lock_, flags);
	}
	void flip_flags(std::uint8_t flags) noexcept
	{
		cpuslab_pagelock_flip_flags(&lock_, flags);
	}
	// Waits until a bit of `mask` differs from that of `seen`; see cpuslab_pagelock_wait.
	void wait(std::uint8_t mask, std::uint8_t seen) noexcept
	{
		cpuslab_pagelock_wait(&lock_, mask, seen, nullptr);
	}
	void wait_unlocked() noexcept
	{
		cpuslab_pagelock_wait_unlocked(&lock_, nullptr);
	}
	using native_handle_type = cpuslab_pagelock *;
	native_handle_type native_handle() noexcept
	{
		return &lock_;
	}

      private:
	using approximate = std::chrono::duration<double>;
	// Any longer duration counts as for ever.
	static constexpr std::chrono::hours ever()
	{
		return std::chrono::hours(24 * 365 * 30);
	}

	// std::chrono::ceil, which C++11 and C++14 do not have.
	template <class To, class From> static To rounded_up(const From &duration)
	{
		To whole = std::chrono::duration_cast<To>(duration);
		return whole < duration ? whole + To(1) : whole;
	}

	// Returns a duration cut to ever() and rounded up, since no wait may be shorter than was asked for.
	// Nothing overflows on the way, whatever the period: durations are compared as floating-point
	// numbers, which hold any of them, and whole seconds are split off before the rest is multiplied.
	template <class Rep, class Period>
	static std::chrono::nanoseconds bounded(const std::chrono::duration<Rep, Period> &duration)
	{
		using std::chrono::nanoseconds;
		using std::chrono::seconds;

		if (!(duration > duration.zero()))
			return nanoseconds::zero();
		if (approximate(duration) > approximate(ever()))
			return ever();
		seconds whole = std::chrono::duration_cast<seconds>(duration);
		return whole + rounded_up<nanoseconds>(duration - whole);
	}

	// Returns the time left until the deadline by its own clock; zero once it has passed.
	template <class Clock, class Duration>
	static std::chrono::nanoseconds left_until(const std::chrono::time_point<Clock, Duration> &deadline)
	{
		using own = typename Clock::duration;

		auto now = Clock::now();
		auto then = deadline.time_since_epoch();
		approximate left = approximate(then) - approximate(now.time_since_epoch());
		if (left > approximate(ever()))
			return ever();
		// Further in the past than a duration may be able to hold, or not a number.
		if (!(left >= -approximate(ever())))
			return std::chrono::nanoseconds::zero();
		return bounded(rounded_up<own>(then) - now.time_since_epoch());
	}

	bool lock_within(std::chrono::nanoseconds left)
	{
		using std::chrono::seconds;

		timespec deadline;
		clock_gettime(CLOCK_MONOTONIC, &deadline);
		seconds whole = std::chrono::duration_cast<seconds>(left);
		deadline.tv_sec += static_cast<time_t>(whole.count());
		deadline.tv_nsec += static_cast<long>((left - whole).count());
		if (deadline.tv_nsec >= 1000000000) {
			deadline.tv_nsec -= 1000000000;
			deadline.tv_sec++;
		}
		return cpuslab_pagelock_timedlock(&lock_, &deadline) == 0;
	}

	cpuslab_pagelock lock_ = CPUSLAB_PAGELOCK_INITIALIZER;
};

class CPUSLAB_CAPABILITY("mcs") mcs
{
      public:
	constexpr mcs() noexcept = default;
	mcs(const mcs &) = delete;
	mcs &operator=(const mcs &) = delete;

	// Holds the lock during its lifetime.
	class CPUSLAB_SCOPED_CAPABILITY guard
	{
	      public:
		explicit guard(mcs &of) noexcept CPUSLAB_ACQUIRE(of) CPUSLAB_IS_A_LOCK : mcs_(of)
		{
			cpuslab_mcs_lock(&mcs_.lock_, &node_);
		}
		~guard() CPUSLAB_RELEASE() CPUSLAB_IS_A_LOCK
		{
			cpuslab_mcs_unlock(&mcs_.lock_, &node_);
		}
		guard(const guard &) = delete;
		guard &operator=(const guard &) = delete;

	      private:
		mcs &mcs_;
		cpuslab_mcs_node node_;
	};

	bool is_locked() const noexcept
	{
		return cpuslab_mcs_is_locked(&lock_);
	}

      private:
	cpuslab_mcs lock_ = CPUSLAB_MCS_INITIALIZER;
};

} // namespace cpuslab
#endif
