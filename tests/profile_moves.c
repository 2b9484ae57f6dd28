/* SPDX-License-Identifier: MIT */
/*
 * profile_moves: realloc moves a mapping while a heap profile runs.  Another thread gets the old address at
 * once; its own record under that address must stay.  An object that cannot be resized keeps its record as
 * well.
 */
#include "check.h"

#include <sys/mman.h>
#include <sys/syscall.h>

#include "magazine/magazine.h"
#include "malloc/large.h"
#include "profile/profile.h"

enum { SIZE = 64 << 20 };

static unsigned moves;
static bool refuses;

/*
 * Replaces libc's: the mapping moves, and another thread gets its old address before anything else happens.
 */
void *mremap(void *old, size_t old_bytes, size_t new_bytes, int flags, ...)
{
	if (refuses) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	void *room = mmap(NULL, new_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(room != MAP_FAILED && flags == MREMAP_MAYMOVE);
	void *moved = (void *)syscall(SYS_mremap, old, old_bytes, new_bytes, flags | MREMAP_FIXED, room);

	CHECK(moved == room);
	CHECK(profile_allocated_large(old, old_bytes));
	moves++;
	return moved;
}

int main(void)
{
	check_watchdog(60);
	free(malloc(1));
	profile.wanted = 1; /* so that each object is a sample */
	magazine_settle_profile();
	void *object = large_alloc_mapping(SIZE);

	CHECK(object && profile_has(object) && profile.tables->bytes_in_use == SIZE);
	refuses = true;
	CHECK(!large_resize(object, 2ul * SIZE));
	CHECK(profile_has(object) && profile.tables->bytes_in_use == SIZE);
	refuses = false;
	void *moved = large_resize(object, 2ul * SIZE);

	CHECK(moves == 1 && moved && moved != object);
	CHECK(profile_has(moved) && profile_has(object));
	CHECK(profile.tables->bytes_in_use == 3ul * SIZE, "%lu bytes", profile.tables->bytes_in_use);
	profile_freed(object);
	large_free(moved, SIZE_MAX);
	CHECK(profile.tables->bytes_in_use == 0, "%lu bytes", profile.tables->bytes_in_use);
	return 0;
}
