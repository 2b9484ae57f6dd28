/* SPDX-License-Identifier: MIT */
/*
 * malloc_steps: of two limits the larger one serves what the smaller one does.  However little RLIMIT_AS or
 * RLIMIT_DATA leave, from nothing at all to more than enough, a program that has begun is served or told
 * ENOMEM; and from the smallest limit that serves it on, all do.
 *
 *   malloc_steps use <bytes> <objects>     started by malloc_steps itself
 */
#include "check.h"

#include <sys/personality.h>
#include <sys/resource.h>

enum {
	KIB = 1 << 10,
	COARSE = 128 * KIB,
	FINE = 8 * KIB,
	MOST = 128 << 20,
	SWEEP = 1 << 20,
	MOST_DEARER = 512 * KIB,
	BEGUN = 7
};
enum ending { NOT_BEGUN, REFUSED, SERVED };

static const struct use {
	const char *bytes, *objects;
} uses[] = {{"32", "12800"}, {"300000", "10"}};

/* Announces that it has begun, in a way that works even if nothing else does. */
static int use_memory(size_t bytes, size_t objects)
{
	char **last = NULL;
	int ending = SERVED;

	CHECK(write(BEGUN, "", 1) == 1);
	alarm(60);
	for (; objects; objects--) {
		errno = 0;
		char **object = malloc(bytes);

		if (!object) {
			CHECK(errno == ENOMEM);
			ending = REFUSED;
			break;
		}
		memset(object, 1, bytes);
		*object = (char *)last;
		last = object;
	}
	while (last) {
		char **next = (char **)*last;

		free(last);
		last = next;
	}
	_exit(ending);
}

static void start(int begun, int resource, size_t limit, const struct use *use)
{
	struct rlimit bound = {limit, limit};

	/* Address-space randomisation would add differences of a page or two. */
	(void)personality(ADDR_NO_RANDOMIZE);
	CHECK(dup2(begun, BEGUN) == BEGUN && fcntl(STDERR_FILENO, F_SETFD, FD_CLOEXEC) == 0);
	CHECK(setrlimit((__rlimit_resource_t)resource, &bound) == 0);
	execl("/proc/self/exe", "malloc_steps", "use", use->bytes, use->objects, NULL);
	_exit(127);
}

static enum ending try(int resource, size_t limit, const struct use *use)
{
	int begun[2];
	char byte;

	CHECK(pipe2(begun, O_CLOEXEC) == 0);
	pid_t child = fork();

	CHECK(child >= 0);
	if (child == 0)
		start(begun[1], resource, limit, use);
	close(begun[1]);
	bool has_begun = read(begun[0], &byte, 1) == 1;
	int status = check_wait(child);

	close(begun[0]);
	/* The kernel kills, or the dynamic linker refuses to start, a program without room for itself. */
	if (!has_begun)
		return NOT_BEGUN;
	CHECK(WIFEXITED(status) && (WEXITSTATUS(status) == REFUSED || WEXITSTATUS(status) == SERVED),
	      "RLIMIT_%s %zu KiB, %s bytes: wait status %#x", resource == RLIMIT_AS ? "AS" : "DATA",
	      limit / KIB, use->bytes, (unsigned)status);
	return (enum ending)WEXITSTATUS(status);
}

/* The smallest limit that serves it, searched in large steps. */
static size_t sweep(int resource, const struct use *use, unsigned *refused)
{
	size_t limit = 0;
	enum ending ending;

	while ((ending = try(resource, limit, use)) != SERVED) {
		*refused += ending == REFUSED;
		limit += COARSE;
		CHECK(limit < MOST);
	}
	/* And limits just below, where steps of the heap are first granted in part. */
	size_t first = limit;

	for (size_t end = limit + SWEEP; limit < end; limit += FINE)
		CHECK(try(resource, limit, use) == SERVED,
		      "RLIMIT_%s: %zu KiB serve %s objects of %s bytes, %zu KiB do not",
		      resource == RLIMIT_AS ? "AS" : "DATA", first / KIB, use->objects, use->bytes,
		      limit / KIB);
	return first;
}

/* Where nothing is reserved, the page map must not take what there is. */
static void expect_no_dearer(size_t first, const struct use *use, unsigned *refused)
{
	const char *given = getenv("CPUSLAB_OPTIONS");
	char options[256];

	snprintf(options, sizeof options, "%s,reserve:0", given ? given : "shuffle:false");
	CHECK(setenv("CPUSLAB_OPTIONS", options, 1) == 0);
	size_t unreserved = sweep(RLIMIT_DATA, use, refused);

	CHECK(unreserved <= first + MOST_DEARER, "RLIMIT_DATA: %zu KiB instead of %zu", unreserved / KIB,
	      first / KIB);
}

int main(int argc, char **argv)
{
	unsigned refused = 0;

	if (argc == 4)
		return use_memory(strtoul(argv[2], NULL, 10), strtoul(argv[3], NULL, 10));
	check_watchdog(300);
	size_t first = 0;

	for (size_t i = sizeof uses / sizeof *uses; i--;) {
		(void)sweep(RLIMIT_AS, &uses[i], &refused);
		first = sweep(RLIMIT_DATA, &uses[i], &refused);
	}
	if (check_cpuslab())
		expect_no_dearer(first, &uses[0], &refused);
	printf("%s: refused by %u limits below the first that serves\n", check_mode(), refused);
	return 0;
}
