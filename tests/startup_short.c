/* SPDX-License-Identifier: MIT */
/*
 * startup_short: however little memory the system has left, from nothing to more than enough, the first calls
 * of a program succeed or fail with ENOMEM, and never end it; and once there is memory, all of them work.
 *
 *   startup_short [plain | guard | huge | profile | debug]
 *
 * Each limit is one child, forked before the first call.
 */
#include "allocate_by.h"
#include "check.h"

#include <sys/resource.h>

extern __typeof__(cpuslab_object_of) cpuslab_object_of __attribute__((weak));

enum { PAGES = 1100, STEP = 3, KIB = 1 << 10, STAMPED = 64 };

static const size_t sizes[] = {0, 1, 100, 1000, 5000, 40 * KIB, 100 * KIB, 300 * KIB};

enum { SIZES = sizeof sizes / sizeof *sizes };

static const struct variant {
	const char *name, *option, *debug;
} variants[] = {
	{"plain", NULL, NULL},
	{"guard", "guard:1", NULL},
	{"huge", "huge_pages:always", NULL},
	{"profile", "profile:4K,profile_signal:12,stats_at_exit:true", NULL},
	{"debug", NULL, "CPUSLAB_DEBUG=FZPU"},
};

/* Restarts this program with a variant's options in addition to the present ones; nothing may allocate. */
static void restart_as(const char *name, char **environment)
{
	static char options[256];
	static char *changed[256];
	const struct variant *variant = variants;
	const char *given = "";
	size_t count = 0;

	while (strcmp(variant->name, name) != 0)
		CHECK(++variant < variants + sizeof variants / sizeof *variants);
	for (; *environment && count < 200; environment++)
		if (strncmp(*environment, "CPUSLAB_OPTIONS=", 16) == 0)
			given = *environment + 16;
		else
			changed[count++] = *environment;
	if (variant->debug)
		changed[count++] = (char *)variant->debug;
	CHECK(strlen(given) < 128);
	strcpy(options, "CPUSLAB_OPTIONS=");
	strcat(options, given);
	strcat(options, *given && variant->option ? "," : "");
	strcat(options, variant->option ? variant->option : "");
	changed[count++] = options;
	execve("/proc/self/exe", (char *[]){(char *)"startup_short", NULL}, changed);
	_exit(127);
}

static size_t stamped(size_t size)
{
	return size < STAMPED ? size : STAMPED;
}

/* Returns how many were refused. */
static unsigned allocate_all(void)
{
	static void *objects[ALLOCATE_KINDS][SIZES];
	unsigned refused = 0;

	for (int kind = 0; kind < ALLOCATE_KINDS; kind++)
		for (int i = 0; i < SIZES; i++) {
			errno = 0;
			objects[kind][i] = allocate_by(kind, sizes[i]);
			refused += !objects[kind][i];
			CHECK(objects[kind][i] || errno == ENOMEM, "errno %d", errno);
			check_stamp(objects[kind][i], objects[kind][i] ? stamped(sizes[i]) : 0, sizes[i]);
		}
	for (int kind = 0; kind < ALLOCATE_KINDS; kind++)
		for (int i = 0; i < SIZES; i++) {
			CHECK_STAMP(objects[kind][i], objects[kind][i] ? stamped(sizes[i]) : 0, sizes[i]);
			free(objects[kind][i]);
		}
	return refused;
}

static unsigned live_with(__rlimit_resource_t resource, size_t limit)
{
	struct rlimit was, tight;
	int local = 0;

	CHECK(getrlimit(resource, &was) == 0);
	tight = was;
	tight.rlim_cur = limit;
	CHECK(setrlimit(resource, &tight) == 0);
	unsigned refused = 0;

	for (int round = 0; round < 2; round++) {
		refused += allocate_all();
		/* A call that needs no memory may find a library that has started half-way. */
		free(NULL);
		if (cpuslab_object_of)
			CHECK(!cpuslab_object_of(&local) && !cpuslab_object_of(&was) &&
			      !cpuslab_object_of((void *)&live_with) && !cpuslab_object_of(NULL));
		mallinfo2();
		malloc_trim(0);
	}
	CHECK(setrlimit(resource, &was) == 0);
	unsigned still = allocate_all();
	CHECK(!still, "%u allocations are refused though there is memory again", still);
	return refused;
}

/* In pages, from /proc/self/statm: all that is mapped, or what counts as data. */
static size_t mapped(bool data)
{
	char text[256];
	int file = open("/proc/self/statm", O_RDONLY);
	ssize_t length = read(file, text, sizeof text - 1);
	char *field = text;

	CHECK(file >= 0 && length > 0);
	close(file);
	text[length] = 0;
	for (int skipped = 0; skipped < (data ? 5 : 0); skipped++)
		field = strchr(field, ' ') + 1;
	return strtoul(field, NULL, 10);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		restart_as(argv[1], environ);
	for (int data = 0; data < 2; data++) {
		__rlimit_resource_t resource = data ? RLIMIT_DATA : RLIMIT_AS;
		size_t base = mapped(data);

		for (size_t page = 0; page < PAGES; page += STEP) {
			pid_t child = fork();
			CHECK(child >= 0);
			if (child == 0) {
				alarm(60);
				unsigned refused = live_with(resource, (base + page) << 12);
				_exit(page == 0 && !refused ? CHECK_SKIPPED : 0);
			}
			int status = check_wait(child);
			if (WIFEXITED(status) && WEXITSTATUS(status) == CHECK_SKIPPED)
				check_skip("the library has started before main");
			CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0,
			      "RLIMIT_%s, %zu pages more than at the start: wait status %#x",
			      data ? "DATA" : "AS", page, (unsigned)status);
		}
	}
	return 0;
}
