/* SPDX-License-Identifier: MIT */
/* The small parts of include/kernel: arithmetic, sizes, attributes, warnings, each as the kernel has it. */
#include "check.h"

#include <linux/atomic.h>
#include <linux/bug.h>
#include <linux/cache.h>
#include <linux/cleanup.h>
#include <linux/export.h>
#include <linux/kernel.h>
#include <linux/overflow.h>
#include <linux/refcount.h>
#include <linux/sched.h>
#include <linux/sizes.h>
#include <linux/stddef.h>

struct shaped {
	char first;
	short middle;
	long last[];
};

/* Constants wherever the kernel has constants. */
struct of_log2 {
	char bytes[ilog2(4096)];
	char up[roundup_pow_of_two(100)];
	char down[rounddown_pow_of_two(100)];
	char order[order_base_2(100)];
};
static_assert(sizeof(struct of_log2) == 12 + 128 + 64 + 7);
static_assert(order_base_2(1) == 0 && order_base_2(0) == 0 && order_base_2(128) == 7, "order_base_2");
static const unsigned long up_at_start = roundup_pow_of_two(SZ_4K + 1),
			   down_at_start = rounddown_pow_of_two(5);
static_assert(ilog2(4095) == 11 && ilog2(1) == 0 && ilog2(SZ_1T) == 40, "ilog2");
static_assert(SZ_4K == 4096 && SZ_2G == 1u << 31 && SZ_4G == 1ull << 32 && SZ_64T == 1ull << 46);
static_assert(L1_CACHE_ALIGN(1) == L1_CACHE_BYTES && L1_CACHE_ALIGN(128) == 128);
static_assert(sizeof_field(struct shaped, middle) == 2 && offsetofend(struct shaped, middle) == 4);
static_assert(MIN(3, 4) == 3 && MAX(3, 4) == 4 && BITS_PER_TYPE(u32) == 32 && BIT(3) == 8);

noinline __cold int apart(void);

int apart(void)
{
	return 5;
}
EXPORT_SYMBOL(apart);
EXPORT_SYMBOL_GPL(apart);
EXPORT_SYMBOL_NS_GPL(apart, "SPACE");

static __always_inline int inlined(void)
{
	return 6;
}

static struct {
	char before;
	int value ____cacheline_internodealigned_in_smp;
} lines;

static void test_bits(void)
{
	CHECK(fls(0) == 0 && fls(1) == 1 && fls(0x80000000u) == 32 && fls(255) == 8);
	CHECK(fls64(0) == 0 && fls64(1ull << 63) == 64 && fls64(SZ_4G - 1) == 32);
	CHECK(__fls(1) == 0 && __fls(1ul << 63) == 63 && __ffs(12) == 2 && ffs(12) == 3 && ffz(7) == 3);
	CHECK(hweight32(0xff) == 8 && hweight64(~0ull) == 64 && hweight_long(5) == 2);
	CHECK(BIT_WORD(65) == 1 && BIT_MASK(65) == 2);
	for (unsigned long n = 1; n < 100000; n++) {
		CHECK(1ul << ilog2(n) <= n && n < 2ul << ilog2(n));
		CHECK(roundup_pow_of_two(n) >= n && roundup_pow_of_two(n) < 2 * n);
		CHECK(rounddown_pow_of_two(n) == 1ul << ilog2(n) &&
		      1ul << order_base_2(n) == roundup_pow_of_two(n));
		CHECK(is_power_of_2(n) == (rounddown_pow_of_two(n) == n));
	}
	CHECK(up_at_start == SZ_8K && down_at_start == 4);
	volatile unsigned long none = 0, calls = 3;

	CHECK(order_base_2(none) == 0 && order_base_2(calls++) == 2 && roundup_pow_of_two(calls++) == 4 &&
	      rounddown_pow_of_two(calls++) == 4 && calls == 6);
}

static void test_minmax(void)
{
	u8 narrow = 200;
	u64 wide = 1ull << 40;
	int calls = 0;

	CHECK(min3(3, 1, 2) == 1 && max3(3, 1, 2) == 3 && min3(narrow, wide, 300u) == 200);
	CHECK(max3(narrow, wide, 300u) == wide && min(calls++, 5) == 0 && calls == 1);
	CHECK(clamp_t(int, -5, 0, 10) == 0 && clamp_val(narrow, 10, 20) == 20);
	CHECK(min_not_zero(0, 4) == 4 && min_not_zero(4, 0) == 4 && min_not_zero(3, 4) == 3 &&
	      min_not_zero(4, 3) == 3 && min_not_zero(0, 0) == 0);
	CHECK(PTR_ALIGN((char *)0x1001, 16) == (char *)0x1010);
}

/* A macro's internal names must not clash with the caller's. */
static int warns_of(int warned_, int said_)
{
	return WARN_ON(warned_) + WARN_ON_ONCE(said_);
}

static void test_names(void)
{
	int some_a_ = 3, some_b_ = 2, swap_ = 5, other = 6, pick_a_ = 7, pick_b_ = 8;
	void *place_ = &other, *kept_ = no_free_ptr(place_);

	CHECK(min_not_zero(some_b_, some_a_) == 2 && min_not_zero(some_a_, some_b_) == 2);
	swap(swap_, other);
	CHECK(swap_ == 6 && other == 5 && min(pick_b_, pick_a_) == 7 && max(pick_b_, pick_a_) == 8);
	CHECK(kept_ == &other && !place_);
}

static void test_sizes(void)
{
	size_t most = SIZE_MAX;
	struct shaped *shaped;

	CHECK(size_add(1, 2) == 3 && size_add(most, 1) == most && size_mul(2, 3) == 6);
	CHECK(size_mul(most / 2, 3) == most && size_sub(5, 3) == 2 && size_sub(3, 5) == most);
	CHECK(size_sub(most, 1) == most && size_sub(5, most) == most);
	CHECK(array3_size(2, 3, 4) == 24 && array3_size(most, 3, 4) == most && array_size(3, 4) == 12);
	CHECK(struct_size_t(struct shaped, last, 3) == sizeof(struct shaped) + 3 * sizeof(long));
	CHECK(struct_size(shaped, last, 3) == struct_size_t(struct shaped, last, 3));
	CHECK(struct_size_t(struct shaped, last, most) == most);
}

static void test_atomics(void)
{
	atomic_t v = ATOMIC_INIT(5);
	atomic_long_t wide = ATOMIC_LONG_INIT(1l << 40);
	atomic64_t exact = ATOMIC64_INIT(-1);

	atomic_add(3, &v);
	atomic_sub(1, &v);
	atomic_inc(&v);
	atomic_dec(&v);
	CHECK(atomic_read(&v) == 7 && atomic_read_acquire(&v) == 7 && atomic_fetch_add(2, &v) == 7);
	CHECK(atomic_add_return(1, &v) == 10 && atomic_sub_return(8, &v) == 2 && atomic_inc_return(&v) == 3);
	CHECK(atomic_dec_return(&v) == 2 && !atomic_dec_and_test(&v) && atomic_dec_and_test(&v));
	CHECK(!atomic_inc_not_zero(&v) && atomic_read(&v) == 0 && atomic_add_unless(&v, 4, 1));
	CHECK(atomic_inc_not_zero(&v) && atomic_xchg(&v, 9) == 5 && atomic_cmpxchg(&v, 8, 1) == 9);
	CHECK(atomic_cmpxchg(&v, 9, 1) == 9 && atomic_read(&v) == 1);
	atomic_set(&v, 3);
	atomic_set_release(&v, 4);
	CHECK(atomic_read(&v) == 4 && atomic_long_inc_return(&wide) == (1l << 40) + 1);
	CHECK(atomic64_inc_return(&exact) == 0);
}

static refcount_t users = REFCOUNT_INIT(1);

static void *use_and_drop(void *last)
{
	for (int i = 0; i < 100000; i++) {
		CHECK(i % 2 ? refcount_inc_not_zero(&users) : (refcount_inc(&users), true));
		CHECK(!refcount_dec_and_test(&users));
	}
	__atomic_fetch_add((int *)last, refcount_dec_and_test(&users), __ATOMIC_RELAXED);
	return NULL;
}

static void misuse(void *argument)
{
	refcount_t count = REFCOUNT_INIT(0);

	(void)argument;
	CHECK(!refcount_inc_not_zero(&count));
	refcount_inc(&count);
	/* Saturated: from now on it is in use for ever. */
	CHECK(!refcount_dec_and_test(&count) && refcount_inc_not_zero(&count));
	refcount_set(&count, 0);
	CHECK(!refcount_dec_and_test(&count) && !refcount_dec_and_test(&count));
	refcount_set(&count, INT_MAX);
	refcount_inc(&count);
	CHECK(refcount_read(&count) == (unsigned)REFCOUNT_SATURATED);
	refcount_set(&count, 0);
	refcount_inc(&count);
}

static int times(const char *text, const char *said)
{
	int count = 0;

	while ((text = strstr(text, said))) {
		text += strlen(said);
		count++;
	}
	return count;
}

static void test_refcount(void)
{
	enum { THREADS = 4 };
	pthread_t threads[THREADS];
	int last = 0;
	char text[1024];

	refcount_set(&users, THREADS);
	for (int i = 0; i < THREADS; i++)
		threads[i] = check_thread(use_and_drop, &last);
	for (int i = 0; i < THREADS; i++)
		check_join(threads[i]);
	CHECK(last == 1 && refcount_read(&users) == 0);
	CHECK_EXITED(check_child(misuse, NULL, text, sizeof text), 0);
	/* Each kind warns once, whichever came before it. */
	CHECK(times(text, "addition on 0; use after free") == 1 &&
		      times(text, "underflow; use after free") == 1 && times(text, "saturated; ") == 1,
	      "said: %s", text);
}

/* ---- scopes -------------------------------------------------------------------------------------------- */

static int held, ended;

DEFINE_GUARD(counter, int *, ++*_T, --*_T)
DEFINE_CLASS(doubled, int, ended += _T, 2 * number, int number)
DEFINE_LOCK_GUARD_0(everything, held += 10, held -= 10)

static int held_when(int way)
{
	if (way == 1) {
		scoped_guard(counter, &held)
		{
			return held;
		}
	}
	guard(everything)();
	if (way == 2)
		return held;
	scoped_guard(counter, &held)
	{
		for (;;)
			break;
		if (way == 3)
			break;
		if (way == 4)
			continue;
		return held;
	}
	return held;
}

/* What begins in a scope ends with it, however the scope is left. */
static void test_scopes(void)
{
	CHECK(held_when(1) == 1 && held_when(2) == 10 && held_when(3) == 10 && held_when(4) == 10 &&
	      held_when(5) == 11 && held == 0);
	{
		CLASS(doubled, six)(3);
		CLASS(doubled, eight)(4);
		guard(counter)(&held);
		CHECK(six == 6 && eight == 8 && ended == 0 && held == 1);
	}
	CHECK(ended == 14 && held == 0);
}

static int once(void)
{
	return WARN_ONCE(true, "said %s\n", "once") + WARN_ON_ONCE(true);
}

/* Each warning prints its condition. */
static void warn(void *argument)
{
	(void)argument;
	CHECK(!WARN(false, "not said\n") && !WARN_ON(0) && !WARN_ON_ONCE(0) && !WARN_ONCE(0, "not said\n"));
	CHECK(WARN(true, "said %d\n", 5) == 1 && WARN_ON(77) == 1);
	CHECK(once() == 2 && once() == 2);
	if (WARN_ON_ONCE(once() != 2))
		abort();
	CHECK(warns_of(1, 1) == 2);
	BUG_ON(false);
	BUILD_BUG_ON(sizeof(int) != 4);
	BUILD_BUG_ON_MSG(false, "never");
}

static void test_warnings(void)
{
	char text[1024];
	int lines_said = 0, places = 0;

	CHECK_EXITED(check_child(warn, NULL, text, sizeof text), 0);
	for (const char *line = text; *line; line = strchr(line, '\n') + 1) {
		CHECK(strchr(line, '\n'), "said: %s", text);
		lines_said++;
		places += strncmp(line, "WARNING at ", 11) == 0 && strstr(line, "kmem_headers.c:");
	}
	CHECK(places == 6 && lines_said == 8, "said: %s", text);
	CHECK(strstr(text, "said 5\n") && strstr(text, "said once\n") && !strstr(text, "not said"),
	      "said: %s", text);
}

int main(void)
{
	check_watchdog(100);
	test_bits();
	test_minmax();
	test_names();
	test_sizes();
	test_atomics();
	test_refcount();
	test_scopes();
	test_warnings();
	CHECK(apart() + inlined() == 11 && (uintptr_t)&lines.value % 64 == 0 && cache_line_size() == 64);
	might_sleep();
	might_sleep_if(true);
	CHECK(!cond_resched() && !need_resched());
	return 0;
}
