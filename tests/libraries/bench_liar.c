/* SPDX-License-Identifier: MIT */
/*
 * An allocator for the benchmark's own tests: glibc's, under which programs print another line as they end
 * once the file that BENCH_LIAR names has more than three bytes; each program adds one.
 */
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

void *__libc_malloc(size_t size);
void *malloc(size_t size);

void *malloc(size_t size)
{
	return __libc_malloc(size);
}

__attribute__((destructor)) static void lie(void)
{
	const char *path = getenv("BENCH_LIAR");
	int file = path ? open(path, O_WRONLY | O_APPEND | O_CLOEXEC) : -1;

	if (file < 0)
		return;
	if (write(file, "x", 1) == 1 && lseek(file, 0, SEEK_CUR) > 3 && write(STDOUT_FILENO, "lie\n", 4) != 4)
		_exit(1);
	close(file);
}
