/* SPDX-License-Identifier: MIT */
/*
 * malloc_cgroup: in a control group limited to 64 MiB, a program survives that never has more than 28 MiB in
 * use, though of other sizes each time: freed memory is reused, or goes back to the system.  A group that
 * exceeds its limit gets no error: the kernel kills one of its processes.
 */
#include "check.h"

#include <sys/stat.h>

enum { MIB = 1 << 20, LIMIT = 64 * MIB, USED = 28 * MIB, PATH = 600 };

/* The names in the two versions of control groups. */
static const struct version {
	const char *controller, *mount, *limit, *swap, *peak;
} versions[] = {
	{":memory:", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", NULL, "memory.max_usage_in_bytes"},
	{"0::", "/sys/fs/cgroup", "memory.max", "memory.swap.max", "memory.peak"},
};

static bool put(const char *group, const char *name, const char *text)
{
	char path[PATH];
	snprintf(path, sizeof path, "%s/%s", group, name);
	int file = open(path, O_WRONLY | O_CLOEXEC);
	bool written = file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text);
	if (file >= 0)
		close(file);
	return written;
}

static bool get(const char *path, char *text, size_t size)
{
	int file = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t length = file < 0 ? -1 : read(file, text, size - 1);
	if (file >= 0)
		close(file);
	text[length > 0 ? length : 0] = 0;
	return length > 0;
}

/* Makes a group inside this process's own, with the limit; false where that is not permitted. */
static bool make_group(const struct version *version, char group[PATH])
{
	char text[4096], bytes[32];
	if (!get("/proc/self/cgroup", text, sizeof text))
		return false;
	char *own = strstr(text, version->controller);
	if (!own)
		return false;
	own += strlen(version->controller);
	own[strcspn(own, "\n")] = 0;
	snprintf(group, PATH, "%s%.400s/cpuslab-%d", version->mount, strcmp(own, "/") == 0 ? "" : own,
		 getpid());
	if (mkdir(group, 0700) != 0)
		return false;
	snprintf(bytes, sizeof bytes, "%d", LIMIT);
	if (put(group, version->limit, bytes)) {
		if (version->swap)
			(void)put(group, version->swap, "0");
		return true;
	}
	rmdir(group);
	return false;
}

struct block {
	struct block *next;
};

static void fill_and_empty(size_t size)
{
	struct block *blocks = NULL;
	size_t count = USED / size;
	for (size_t i = 0; i < count; i++) {
		struct block *block = malloc(size);
		CHECK(block);
		check_stamp(block + 1, size - sizeof *block, i);
		block->next = blocks;
		blocks = block;
	}
	while (count--) {
		struct block *block = blocks;
		CHECK_STAMP(block + 1, size - sizeof *block, count);
		blocks = block->next;
		free(block);
	}
	CHECK(!blocks);
}

static void *fill_and_empty_all(void *unused)
{
	static const size_t sizes[] = {48, 1000, 6000, 100000, MIB, 5 * MIB};
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		fill_and_empty(sizes[i]);
	return unused;
}

/* Works inside the group: in this thread, in another one, and in this one again. */
static void live_within(const char *group)
{
	check_watchdog(60);
	if (!put(group, "cgroup.procs", "0"))
		_exit(CHECK_SKIPPED);
	fill_and_empty_all(NULL);
	check_join(check_thread(fill_and_empty_all, NULL));
	fill_and_empty_all(NULL);
	_exit(0);
}

int main(void)
{
	char group[PATH], path[2 * PATH], peak[64];
	const struct version *version = versions;
	check_watchdog(100);
	while (!make_group(version, group))
		if (++version == versions + sizeof versions / sizeof *versions)
			check_skip("no memory control group can be made here");
	pid_t child = fork();
	if (child == 0)
		live_within(group);
	int status = child < 0 ? -1 : check_wait(child);
	snprintf(path, sizeof path, "%s/%s", group, version->peak);
	(void)get(path, peak, sizeof peak);
	/* The group lives on for a moment after its last process. */
	for (int i = 0; i < 100 && rmdir(group) != 0 && errno == EBUSY; i++)
		usleep(10000);
	if (WIFEXITED(status) && WEXITSTATUS(status) == CHECK_SKIPPED)
		check_skip("a process may not change its control group here");
	CHECK_EXITED(status, 0);
	printf("%s: at most %lu KiB of %d\n", check_mode(), strtoul(peak, NULL, 10) >> 10, LIMIT >> 10);
	return 0;
}
