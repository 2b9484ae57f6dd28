// SPDX-License-Identifier: MIT
// Nothrow operator new where the library has none: memory is the library's, and what a handler throws is
// caught.
#include <cpuslab/cpuslab.h>

#include <cstdint>
#include <new>

static int calls;

static void handler()
{
	if (++calls == 3)
		throw std::bad_alloc();
}

int main()
{
	void *object = ::operator new(100, std::nothrow);
	if (!object || cpuslab_object_of(object) != object)
		return 1;
	::operator delete(object, std::nothrow);
	object = ::operator new[](1000, std::align_val_t(256), std::nothrow);
	if (!object || cpuslab_object_of(object) != object)
		return 2;
	::operator delete[](object, std::align_val_t(256), std::nothrow);
	std::set_new_handler(handler);
	return ::operator new(PTRDIFF_MAX / 2, std::nothrow) == nullptr &&calls == 3 ? 0 : 3;
}
