/* SPDX-License-Identifier: MIT */
/*
 * malloc_old_names: names that only programs linked long ago call, and that libc alone defines. cfree was an
 * alias of free until glibc 2.26; libc's would take an object of this library for one of its own.
 */
#include "check.h"

#ifdef __x86_64__

/* As such a program calls it. */
void old_cfree(void *object);
__asm__(".symver old_cfree, cfree@GLIBC_2.2.5");

int main(void)
{
	static const size_t sizes[] = {0, 1, 100, 5000, 100000, 300000, 100 << 20};

	check_watchdog(60);
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		void *object = malloc(sizes[i]);

		CHECK(object);
		old_cfree(object);
	}
	old_cfree(NULL);
	return 0;
}

#else

int main(void)
{
	check_skip("the name's version is known here for x86-64 only");
}

#endif
