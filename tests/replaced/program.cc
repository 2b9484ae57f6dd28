/* SPDX-License-Identifier: MIT */
/*
 * Calls each function of the malloc family and each operator, and prints which of the program's own functions
 * (functions.cc) each call has come to.
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <malloc.h>
#include <new>

static char trace[4096];
static std::size_t length;
static bool recording;

/* Also the library's start, and stdio, allocate: what happens outside a step is not recorded. */
extern "C" void note(const char *name)
{
	if (recording)
		length += static_cast<std::size_t>(
			std::snprintf(trace + length, sizeof trace - length, " %s", name));
}

/* glibc has these from 2.43 on, and makes them of free. */
extern "C" {
void free_sized(void *object, std::size_t size) noexcept __attribute__((weak));
void free_aligned_sized(void *object, std::size_t alignment, std::size_t size) noexcept __attribute__((weak));
}

static char lines[16384];
static std::size_t written;

template <typename Step> static void step(const char *name, Step call)
{
	length = 0;
	trace[0] = 0;
	recording = true;
	call();
	recording = false;
	written += static_cast<std::size_t>(
		std::snprintf(lines + written, sizeof lines - written, "%s:%s\n", name, trace));
}
#define STEP(text, ...) step(text, [&] { __VA_ARGS__; })

static void c_family()
{
	void *volatile p = nullptr, *q = nullptr;

	STEP("malloc", p = std::malloc(40));
	STEP("realloc", p = std::realloc(p, 400));
	STEP("reallocarray", p = reallocarray(p, 20, 50));
	STEP("malloc_usable_size", if (malloc_usable_size(p) < 1000) std::abort());
	STEP("free", std::free(p));
	STEP("calloc", p = std::calloc(3, 30));
	STEP("free_sized", free_sized ? free_sized(p, 90) : std::free(p));
	STEP("realloc of nothing", p = std::realloc(nullptr, 70));
	STEP("free", std::free(p));
	STEP("reallocarray of nothing", p = reallocarray(nullptr, 7, 10));
	STEP("free", std::free(p));
	STEP("aligned_alloc", p = std::aligned_alloc(64, 128));
	STEP("free_aligned_sized", free_aligned_sized ? free_aligned_sized(p, 64, 128) : std::free(p));
	STEP("memalign", p = memalign(256, 100));
	STEP("free", std::free(p));
	STEP("posix_memalign", if (posix_memalign(&q, 512, 100)) std::abort());
	STEP("free", std::free(q));
	STEP("valloc", p = valloc(100));
	STEP("free", std::free(p));
	STEP("strdup", p = strdup("seven hundred"));
	STEP("free", std::free(p));
}

static void plain_operators()
{
	void *p;

	STEP("new", p = ::operator new(40));
	STEP("delete", ::operator delete(p));
	STEP("new", p = ::operator new(40));
	STEP("delete sized", ::operator delete(p, std::size_t{40}));
	STEP("new nothrow", p = ::operator new(40, std::nothrow));
	STEP("delete nothrow", ::operator delete(p, std::nothrow));
	STEP("new[]", p = ::operator new[](400));
	STEP("delete[]", ::operator delete[](p));
	STEP("new[]", p = ::operator new[](400));
	STEP("delete[] sized", ::operator delete[](p, std::size_t{400}));
	STEP("new[] nothrow", p = ::operator new[](400, std::nothrow));
	STEP("delete[] nothrow", ::operator delete[](p, std::nothrow));
}

static void aligned_operators()
{
	std::align_val_t align{64};
	void *p;

	STEP("new aligned", p = ::operator new(40, align));
	STEP("delete aligned", ::operator delete(p, align));
	STEP("new aligned", p = ::operator new(40, align));
	STEP("delete aligned sized", ::operator delete(p, std::size_t{40}, align));
	STEP("new aligned nothrow", p = ::operator new(40, align, std::nothrow));
	STEP("delete aligned nothrow", ::operator delete(p, align, std::nothrow));
	STEP("new[] aligned", p = ::operator new[](400, align));
	STEP("delete[] aligned", ::operator delete[](p, align));
	STEP("new[] aligned", p = ::operator new[](400, align));
	STEP("delete[] aligned sized", ::operator delete[](p, std::size_t{400}, align));
	STEP("new[] aligned nothrow", p = ::operator new[](400, align, std::nothrow));
	STEP("delete[] aligned nothrow", ::operator delete[](p, align, std::nothrow));
}

int main()
{
	c_family();
	/* Twice: what is freed once may be allocated the quick way. */
	for (int turn = 0; turn < 2; turn++) {
		plain_operators();
		aligned_operators();
	}
	std::fputs(lines, stdout);
	return 0;
}
