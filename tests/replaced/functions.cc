/* SPDX-License-Identifier: MIT */
/*
 * Functions of the malloc family and operators as a program may replace them; REPLACE_name chooses one for an
 * object file of its own.  Each tells its name to the program, and takes memory from the heap that is there.
 */
#include <cstddef>
#include <new>

extern "C" {
void note(const char *name);
void *__libc_malloc(std::size_t size);
void __libc_free(void *object);
void *__libc_calloc(std::size_t count, std::size_t size);
void *__libc_realloc(void *object, std::size_t size);
void *__libc_memalign(std::size_t alignment, std::size_t size);

#ifdef REPLACE_malloc
void *malloc(std::size_t size) noexcept
{
	note("malloc");
	return __libc_malloc(size);
}
#endif
#ifdef REPLACE_free
void free(void *object) noexcept
{
	note("free");
	__libc_free(object);
}
#endif
#ifdef REPLACE_calloc
void *calloc(std::size_t count, std::size_t size) noexcept
{
	note("calloc");
	return __libc_calloc(count, size);
}
#endif
#ifdef REPLACE_realloc
void *realloc(void *object, std::size_t size) noexcept
{
	note("realloc");
	return __libc_realloc(object, size);
}
#endif
#ifdef REPLACE_reallocarray
void *reallocarray(void *object, std::size_t count, std::size_t size) noexcept
{
	note("reallocarray");
	return __libc_realloc(object, count * size);
}
#endif
#ifdef REPLACE_aligned_alloc
void *aligned_alloc(std::size_t alignment, std::size_t size) noexcept
{
	note("aligned_alloc");
	return size % alignment ? nullptr : __libc_memalign(alignment, size);
}
#endif
#ifdef REPLACE_memalign
void *memalign(std::size_t alignment, std::size_t size) noexcept
{
	note("memalign");
	return __libc_memalign(alignment, size);
}
#endif
#ifdef REPLACE_posix_memalign
int posix_memalign(void **object, std::size_t alignment, std::size_t size) noexcept
{
	note("posix_memalign");
	*object = __libc_memalign(alignment, size);
	return *object ? 0 : 12;
}
#endif
}

/* An operator by its mangled name, so that it may have any of the forms. */
#define NEW(symbol, text, alignment, ...)                                                                    \
	extern "C" void *symbol(std::size_t size, ##__VA_ARGS__)                                             \
	{                                                                                                    \
		note(text);                                                                                  \
		return __libc_memalign(alignment, size);                                                     \
	}
#define DELETE(symbol, text, ...)                                                                            \
	extern "C" void symbol(void *object, ##__VA_ARGS__)                                                  \
	{                                                                                                    \
		note(text);                                                                                  \
		__libc_free(object);                                                                         \
	}
#ifdef REPLACE_new
NEW(_Znwm, "new", 16)
#endif
#ifdef REPLACE_new_array
NEW(_Znam, "new[]", 16)
#endif
#ifdef REPLACE_new_nothrow
NEW(_ZnwmRKSt9nothrow_t, "new nothrow", 16, const void *)
#endif
#ifdef REPLACE_new_array_nothrow
NEW(_ZnamRKSt9nothrow_t, "new[] nothrow", 16, const void *)
#endif
#ifdef REPLACE_new_aligned
NEW(_ZnwmSt11align_val_t, "new aligned", alignment, std::size_t alignment)
#endif
#ifdef REPLACE_new_array_aligned
NEW(_ZnamSt11align_val_t, "new[] aligned", alignment, std::size_t alignment)
#endif
#ifdef REPLACE_new_aligned_nothrow
NEW(_ZnwmSt11align_val_tRKSt9nothrow_t, "new aligned nothrow", alignment, std::size_t alignment, const void *)
#endif
#ifdef REPLACE_new_array_aligned_nothrow
NEW(_ZnamSt11align_val_tRKSt9nothrow_t, "new[] aligned nothrow", alignment, std::size_t alignment,
    const void *)
#endif
#ifdef REPLACE_delete
DELETE(_ZdlPv, "delete")
#endif
#ifdef REPLACE_delete_array
DELETE(_ZdaPv, "delete[]")
#endif
#ifdef REPLACE_delete_nothrow
DELETE(_ZdlPvRKSt9nothrow_t, "delete nothrow", const void *)
#endif
#ifdef REPLACE_delete_array_nothrow
DELETE(_ZdaPvRKSt9nothrow_t, "delete[] nothrow", const void *)
#endif
#ifdef REPLACE_delete_sized
DELETE(_ZdlPvm, "delete sized", std::size_t)
#endif
#ifdef REPLACE_delete_array_sized
DELETE(_ZdaPvm, "delete[] sized", std::size_t)
#endif
#ifdef REPLACE_delete_aligned
DELETE(_ZdlPvSt11align_val_t, "delete aligned", std::size_t)
#endif
#ifdef REPLACE_delete_array_aligned
DELETE(_ZdaPvSt11align_val_t, "delete[] aligned", std::size_t)
#endif
#ifdef REPLACE_delete_aligned_nothrow
DELETE(_ZdlPvSt11align_val_tRKSt9nothrow_t, "delete aligned nothrow", std::size_t, const void *)
#endif
#ifdef REPLACE_delete_array_aligned_nothrow
DELETE(_ZdaPvSt11align_val_tRKSt9nothrow_t, "delete[] aligned nothrow", std::size_t, const void *)
#endif
#ifdef REPLACE_delete_aligned_sized
DELETE(_ZdlPvmSt11align_val_t, "delete aligned sized", std::size_t, std::size_t)
#endif
#ifdef REPLACE_delete_array_aligned_sized
DELETE(_ZdaPvmSt11align_val_t, "delete[] aligned sized", std::size_t, std::size_t)
#endif
