/* SPDX-License-Identifier: MIT */
/*
 * cxx_operators: every replaceable form of operator new and delete comes from the library, and does what the
 * standard says when memory runs out: the new-handler is asked, then bad_alloc or a null pointer.
 */
#include "check.h"

#include <cstdint>
#include <dlfcn.h>
#include <new>
#include <stdexcept>

#ifndef __cpp_sized_deallocation /* clang declares these by -fsized-deallocation only */
void operator delete(void *, std::size_t) noexcept;
void operator delete[](void *, std::size_t) noexcept;
void operator delete(void *, std::size_t, std::align_val_t) noexcept;
void operator delete[](void *, std::size_t, std::align_val_t) noexcept;
#endif

static volatile std::size_t hopeless = static_cast<std::size_t>(PTRDIFF_MAX) / 2;
static volatile std::size_t impossible = SIZE_MAX - 100;

static const std::size_t sizes[] = {0, 1, 8, 16, 24, 100, 1000, 5000, 100000, 300000, 5u << 20};

static void use(void *object, std::size_t size, std::size_t alignment)
{
	CHECK(object, "%zu bytes", size);
	CHECK(reinterpret_cast<std::uintptr_t>(object) % alignment == 0, "%p, alignment %zu", object,
	      alignment);
	CHECK(malloc_usable_size(object) >= size);
	check_stamp(object, size, size);
	CHECK_STAMP(object, size, size);
}

static void plain_forms(std::size_t size)
{
	void *object = ::operator new(size);
	use(object, size, 16);
	::operator delete(object);
	object = ::operator new(size);
	::operator delete(object, size);
	object = ::operator new(size, std::nothrow);
	use(object, size, 16);
	::operator delete(object, std::nothrow);

	object = ::operator new[](size);
	use(object, size, 16);
	::operator delete[](object);
	object = ::operator new[](size);
	::operator delete[](object, size);
	object = ::operator new[](size, std::nothrow);
	use(object, size, 16);
	::operator delete[](object, std::nothrow);
}

static void aligned_forms(std::size_t size, std::size_t alignment)
{
	std::align_val_t align{alignment};
	void *object = ::operator new(size, align);
	use(object, size, alignment);
	::operator delete(object, align);
	object = ::operator new(size, align);
	use(object, size, alignment);
	::operator delete(object, size, align);
	object = ::operator new(size, align, std::nothrow);
	use(object, size, alignment);
	::operator delete(object, align, std::nothrow);

	object = ::operator new[](size, align);
	use(object, size, alignment);
	::operator delete[](object, align);
	object = ::operator new[](size, align);
	use(object, size, alignment);
	::operator delete[](object, size, align);
	object = ::operator new[](size, align, std::nothrow);
	use(object, size, alignment);
	::operator delete[](object, align, std::nothrow);
}

/* Nobody may ask for that: whoever does gets no less memory for it. */
static void no_alignment(std::size_t size)
{
	std::align_val_t align{0};
	void *object = ::operator new(size, align);
	use(object, size, 16);
	::operator delete(object, align);
	object = ::operator new(size, align, std::nothrow);
	use(object, size, 16);
	::operator delete(object, align, std::nothrow);
}

/* delete of a null pointer does nothing, in every form. */
static void null_deletes()
{
	void *volatile null = nullptr;
	std::align_val_t align{64};
	::operator delete(null);
	::operator delete(null, std::size_t{10});
	::operator delete(null, std::nothrow);
	::operator delete(null, align);
	::operator delete(null, std::size_t{10}, align);
	::operator delete(null, align, std::nothrow);
	::operator delete[](null);
	::operator delete[](null, std::size_t{10});
	::operator delete[](null, std::nothrow);
	::operator delete[](null, align);
	::operator delete[](null, std::size_t{10}, align);
	::operator delete[](null, align, std::nothrow);
}

enum form { NEW, NEW_ARRAY, NEW_ALIGNED, NEW_ALIGNED_ARRAY, FORMS };

static void *throwing(int form, std::size_t size)
{
	std::align_val_t align{64};
	switch (form) {
	case NEW:
		return ::operator new(size);
	case NEW_ARRAY:
		return ::operator new[](size);
	case NEW_ALIGNED:
		return ::operator new(size, align);
	default:
		return ::operator new[](size, align);
	}
}

static void *not_throwing(int form, std::size_t size)
{
	std::align_val_t align{64};
	switch (form) {
	case NEW:
		return ::operator new(size, std::nothrow);
	case NEW_ARRAY:
		return ::operator new[](size, std::nothrow);
	case NEW_ALIGNED:
		return ::operator new(size, align, std::nothrow);
	default:
		return ::operator new[](size, align, std::nothrow);
	}
}

static int handler_calls;

static void handler_that_gives_up()
{
	if (++handler_calls == 3)
		std::set_new_handler(nullptr);
}

static void handler_that_throws()
{
	handler_calls++;
	throw std::bad_alloc();
}

struct own_failure : std::bad_alloc {
};

static void handler_that_throws_its_own()
{
	handler_calls++;
	throw own_failure();
}

static bool throws_bad_alloc(int form, std::size_t size)
{
	try {
		void *object = throwing(form, size);
		CHECK(!object, "form %d gave %zu bytes", form, size);
	} catch (const std::bad_alloc &) {
		return true;
	}
	return false;
}

static void out_of_memory()
{
	for (int form = 0; form < FORMS; form++)
		for (int i = 0; i < 2; i++) {
			std::size_t size = i ? impossible : hopeless;
			std::set_new_handler(nullptr);
			CHECK(throws_bad_alloc(form, size), "form %d", form);
			CHECK(!not_throwing(form, size), "form %d", form);

			handler_calls = 0;
			std::set_new_handler(handler_that_gives_up);
			CHECK(throws_bad_alloc(form, size), "form %d", form);
			CHECK(handler_calls == 3, "form %d: the handler was called %d times, not 3", form,
			      handler_calls);

			handler_calls = 0;
			std::set_new_handler(handler_that_gives_up);
			CHECK(!not_throwing(form, size), "form %d", form);
			CHECK(handler_calls == 3, "nothrow form %d: %d calls, not 3", form, handler_calls);

			handler_calls = 0;
			std::set_new_handler(handler_that_throws);
			CHECK(throws_bad_alloc(form, size), "form %d", form);
			CHECK(handler_calls == 1);
			CHECK(!not_throwing(form, size), "nothrow form %d lets the handler's exception out",
			      form);
			CHECK(handler_calls == 2);

			bool own = false;
			std::set_new_handler(handler_that_throws_its_own);
			try {
				throwing(form, size);
			} catch (const own_failure &) {
				own = true;
			} catch (...) {
			}
			CHECK(own, "form %d: the handler's exception is replaced", form);
		}
	std::set_new_handler(nullptr);
}

/* All in one object: an operator that is left to libstdc++ calls malloc, but its delete might not match. */
static void all_from_one_library()
{
	Dl_info first, other;
	if (!check_cpuslab() ||
	    !dladdr(reinterpret_cast<void *>(reinterpret_cast<std::uintptr_t>(malloc)), &first))
		return;
	static const char *const names[] = {
		"_Znwm",
		"_Znam",
		"_ZnwmRKSt9nothrow_t",
		"_ZnamRKSt9nothrow_t",
		"_ZnwmSt11align_val_t",
		"_ZnamSt11align_val_t",
		"_ZnwmSt11align_val_tRKSt9nothrow_t",
		"_ZnamSt11align_val_tRKSt9nothrow_t",
		"_ZdlPv",
		"_ZdaPv",
		"_ZdlPvm",
		"_ZdaPvm",
		"_ZdlPvRKSt9nothrow_t",
		"_ZdaPvRKSt9nothrow_t",
		"_ZdlPvSt11align_val_t",
		"_ZdaPvSt11align_val_t",
		"_ZdlPvmSt11align_val_t",
		"_ZdaPvmSt11align_val_t",
		"_ZdlPvSt11align_val_tRKSt9nothrow_t",
		"_ZdaPvSt11align_val_tRKSt9nothrow_t",
	};
	if (dlsym(RTLD_DEFAULT, "malloc") !=
	    reinterpret_cast<void *>(reinterpret_cast<std::uintptr_t>(malloc)))
		return; /* linked into the program, which exports nothing */
	for (const char *name : names) {
		void *symbol = dlsym(RTLD_DEFAULT, name);
		CHECK(symbol && dladdr(symbol, &other), "%s", name);
		CHECK(other.dli_fbase == first.dli_fbase, "%s comes from %s, malloc from %s", name,
		      other.dli_fname, first.dli_fname);
	}
}

/* As programs use them: an object whose constructor throws gives its memory back. */
struct over_aligned {
	alignas(128) char bytes[300];
};

struct fails {
	char bytes[5000];
	fails()
	{
		throw std::runtime_error("constructor");
	}
};

static void expressions()
{
	for (int i = 0; i < 2000; i++) {
		auto *objects = new over_aligned[3];
		CHECK(reinterpret_cast<std::uintptr_t>(objects) % 128 == 0);
		delete[] objects;
		delete new over_aligned;
		bool thrown = false;
		try {
			delete new fails;
		} catch (const std::runtime_error &) {
			thrown = true;
		}
		CHECK(thrown);
	}
}

int main()
{
	check_watchdog(60);
	for (std::size_t size : sizes) {
		plain_forms(size);
		for (std::size_t alignment = 16; alignment <= (1u << 20); alignment *= 4)
			aligned_forms(size, alignment);
		no_alignment(size);
	}
	null_deletes();
	out_of_memory();
	all_from_one_library();
	std::size_t before = check_resident();
	expressions();
	CHECK(check_resident() < before + (4u << 20), "new expressions leak");
	printf("%s: every form\n", check_mode());
	return 0;
}
