/* SPDX-License-Identifier: MIT */
#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <linux/rseq.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "arch/arch.h"
#include "arch/system_call.h"
#include "os/enter.h"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif
#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif

/*
 * ENTER(NAME, ...) makes a system call with up to six arguments; what is left out is 0.  The result is the
 * kernel's: negative numbers from -4095 on are errors.  libc's errno is never touched, which malloc's and
 * free's callers rely on; and no call is a cancellation point (pthreads(7)), at which a thread would leave
 * behind what it has in hand, and every lock that it holds.
 */
#define ENTER_SIX(number, a, b, c, d, e, f, ...)                                                             \
	os_system_call(number, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
#define ENTER(NAME, ...) ENTER_SIX(SYS_##NAME, __VA_ARGS__, 0, 0, 0, 0, 0, 0)

/* The result of a call as 0 or a positive errno. */
static int status_of(long result)
{
	return result < 0 ? (int)-result : 0;
}

/* The result of a call that returns an address; NULL for an error. */
static void *address_of(long result)
{
	enum { ERRORS = 4095 };

	return (unsigned long)result >= -(unsigned long)ERRORS ? NULL : (void *)result;
}

static void *map(void *hint, size_t bytes, int protection, int flags)
{
	return address_of(ENTER(mmap, hint, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1));
}

void *os_map(void *hint, size_t bytes)
{
	return map(hint, bytes, PROT_READ | PROT_WRITE, MAP_NORESERVE);
}

void *os_reserve(void *hint, size_t bytes)
{
	return map(hint, bytes, PROT_NONE, MAP_NORESERVE);
}

int os_reserve_again(void *address, size_t bytes)
{
	if (!map(address, bytes, PROT_NONE, MAP_NORESERVE | MAP_FIXED))
		return ENOMEM;
	(void)os_dump(address, bytes, false);
	return 0;
}

void *os_map_at(void *address, size_t bytes)
{
	void *mapped = map(address, bytes, PROT_READ | PROT_WRITE, MAP_NORESERVE | MAP_FIXED_NOREPLACE);

	/* Kernels before 4.17 treat the address as a hint and may map elsewhere. */
	if (mapped && mapped != address) {
		os_unmap(mapped, bytes);
		return NULL;
	}
	return mapped;
}

/*
 * A sandbox may refuse mprotect.  What is changed here was never written to, so a new mapping does as well;
 * but not when the system is out of memory: it might have removed the old mapping by then.
 */
static int change_access(void *address, size_t bytes, int protection)
{
	int status = status_of(ENTER(mprotect, address, bytes, protection));

	if (status && status != ENOMEM && map(address, bytes, protection, MAP_NORESERVE | MAP_FIXED))
		return 0;
	return status;
}

int os_commit(void *address, size_t bytes)
{
	return change_access(address, bytes, PROT_READ | PROT_WRITE);
}

int os_forbid(void *address, size_t bytes)
{
	return status_of(ENTER(mprotect, address, bytes, PROT_NONE));
}

int os_guard(void *address, size_t bytes)
{
	return status_of(ENTER(madvise, address, bytes, MADV_GUARD_INSTALL));
}

int os_show_zeros(void *address, size_t bytes)
{
	return change_access(address, bytes, PROT_READ);
}

int os_unmap(void *address, size_t bytes)
{
	return status_of(ENTER(munmap, address, bytes));
}

void *os_remap(void *address, size_t old_bytes, size_t new_bytes)
{
	return address_of(ENTER(mremap, address, old_bytes, new_bytes, MREMAP_MAYMOVE));
}

int os_move(void *from, size_t old_bytes, void *to, size_t new_bytes, bool keep)
{
	int flags = MREMAP_MAYMOVE | MREMAP_FIXED | (keep ? MREMAP_DONTUNMAP : 0);

	return status_of(ENTER(mremap, from, old_bytes, new_bytes, flags, to));
}

void *os_take_pages(void *from, size_t bytes)
{
	return address_of(ENTER(mremap, from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0));
}

int os_purge(void *address, size_t bytes)
{
	return status_of(ENTER(madvise, address, bytes, MADV_DONTNEED));
}

unsigned os_purge_several(const struct os_range *ranges, unsigned count)
{
	unsigned done = 0;

	while (done < count && os_purge(ranges[done].address, ranges[done].bytes) == 0)
		done++;
	return done;
}

int os_populate(void *address, size_t bytes)
{
	return status_of(ENTER(madvise, address, bytes, MADV_POPULATE_WRITE));
}

int os_huge_pages(void *address, size_t bytes, bool wanted)
{
	return status_of(ENTER(madvise, address, bytes, wanted ? MADV_HUGEPAGE : MADV_NOHUGEPAGE));
}

void os_resident(const void *first, size_t pages, unsigned char *resident)
{
	if (ENTER(mincore, first, pages * OS_PAGE_BYTES, resident))
		memset(resident, 1, pages);
}

int os_dump(void *address, size_t bytes, bool contained)
{
	return status_of(ENTER(madvise, address, bytes, contained ? MADV_DODUMP : MADV_DONTDUMP));
}

int os_wipe_on_fork(void *address, size_t bytes)
{
	return status_of(ENTER(madvise, address, bytes, MADV_WIPEONFORK));
}

static size_t limit_of(int resource)
{
	struct rlimit limit;

	if (ENTER(prlimit64, 0, resource, 0, &limit) || limit.rlim_cur == RLIM_INFINITY)
		return SIZE_MAX;
	return limit.rlim_cur;
}

size_t os_limit_address_space(void)
{
	return limit_of(RLIMIT_AS);
}

size_t os_limit_data(void)
{
	return limit_of(RLIMIT_DATA);
}

size_t os_mappings_most(void)
{
	enum { USUAL = 65530 };
	char text[32] = "";
	size_t length = os_read_file("/proc/sys/vm/max_map_count", text, sizeof text - 1);
	size_t most = length ? strtoul(text, NULL, 10) : 0;

	return most ? most : USUAL;
}

size_t os_memory_most(void)
{
	static const char before[] = "MemTotal:";
	char text[64] = "";
	size_t length = os_read_file("/proc/meminfo", text, sizeof text - 1);
	size_t kilobytes = length && memcmp(text, before, sizeof before - 1) == 0
				   ? strtoul(text + sizeof before - 1, NULL, 10)
				   : 0;

	return kilobytes ? kilobytes << 10 : (size_t)1 << 47;
}

/* Limits of control groups, in the unified hierarchy and in the one before it. */
static const struct {
	char entry[10], mount[22], high[28], most[23];
} os_groups[] = {
	{"0::/", "/sys/fs/cgroup", "/memory.high", "/memory.max"},
	{":memory:/", "/sys/fs/cgroup/memory", "/memory.soft_limit_in_bytes", "/memory.limit_in_bytes"},
};

enum { GROUP_PATH = 1024 };

/* Copies the path of the process's group from a line of /proc/self/cgroup; false where there is no such line.
 */
static bool group_path(const char *lines, const char *entry, char path[static GROUP_PATH])
{
	const size_t length = strlen(entry);

	for (; *lines; lines++)
		if (strncmp(lines, entry, length) == 0) {
			const char *start = lines + length - 1;
			size_t bytes = strcspn(start, "\n");

			memcpy(path, start, bytes);
			path[bytes] = 0;
			return true;
		}
	return false;
}

static size_t read_limit(const char *mount, const char *group, const char *file)
{
	/* What the older hierarchy says where there is none is a page less than twice this. */
	const size_t none = (size_t)1 << 62;
	char path[GROUP_PATH + 64], text[32] = "";

	stpcpy(stpcpy(stpcpy(path, mount), group), file);
	os_read_file(path, text, sizeof text - 1);
	size_t bytes = strtoul(text, NULL, 10); /* 0 for "max" */

	return bytes && bytes < none ? bytes : SIZE_MAX;
}

size_t os_cgroup_limit(bool high)
{
	char lines[GROUP_PATH] = "", group[GROUP_PATH];
	size_t least = SIZE_MAX;

	os_read_file("/proc/self/cgroup", lines, sizeof lines - 1);
	for (unsigned i = 0; i < sizeof os_groups / sizeof *os_groups; i++) {
		bool more = group_path(lines, os_groups[i].entry, group);

		while (more) {
			size_t bytes = read_limit(os_groups[i].mount, group,
						  high ? os_groups[i].high : os_groups[i].most);

			least = bytes < least ? bytes : least;
			/* The group around it, up to the root, whose name is empty here. */
			more = *group;
			if (more)
				*strrchr(group, '/') = 0;
		}
	}
	return least == SIZE_MAX ? 0 : least;
}

/* An emulator's pages count as the process's.  0 where the system does not tell. */
static inline __attribute__((always_inline)) size_t resident_pages(void)
{
	char text[64] = "", *second = text;

	os_read_file("/proc/self/statm", text, sizeof text - 1);
	strtoul(text, &second, 10);
	return strtoul(second, NULL, 10);
}

static __attribute__((noinline)) bool sample_costs(void)
{
	/* valgrind says so of a range of 256 MiB or more. */
	enum { SAMPLE = 192 << 20, COSTS = (192 << 10) / OS_PAGE_BYTES };
	size_t before = resident_pages();
	void *sample = os_reserve(NULL, SAMPLE);

	if (!sample)
		return false;

	bool costs = before && resident_pages() >= before + COSTS;

	os_unmap(sample, SAMPLE);
	return costs;
}

bool os_reserving_costs(void)
{
	static enum { UNKNOWN, COSTS, IS_FREE } known;

	if (known == UNKNOWN)
		known = !(&__rseq_size && __rseq_size) && sample_costs() ? COSTS : IS_FREE;
	return known == COSTS;
}

/*
 * Gets the CPUs that the caller may use.  The raw call returns the size of the kernel's mask in bytes, and
 * fails if the buffer is smaller.
 */
static long cpu_mask(unsigned long *mask, size_t bytes)
{
	return ENTER(sched_getaffinity, 0, bytes, mask);
}

/* Enough for most machines, and for the largest, whose mask may overflow a small stack. */
enum { MASK_WORDS = 16, MASK_WORDS_MOST = 1024 };

/* Not inlined, nor is count_many_cpus: every program would touch its stack pages. */
static __attribute__((noinline)) long large_cpu_mask_bytes(void)
{
	unsigned long mask[MASK_WORDS_MOST];

	return cpu_mask(mask, sizeof mask);
}

unsigned os_possible_cpus(void)
{
	unsigned long mask[MASK_WORDS];
	long bytes = cpu_mask(mask, sizeof mask);

	/* All ids are below eight times the mask's bytes. */
	if (bytes <= 0)
		bytes = large_cpu_mask_bytes();
	return bytes > 0 ? (unsigned)bytes * 8 : CPU_SETSIZE;
}

static unsigned count_cpus(const unsigned long *mask, long bytes)
{
	unsigned cpus = 0;

	for (long word = 0; word * (long)sizeof *mask < bytes; word++)
		cpus += (unsigned)__builtin_popcountl(mask[word]);
	return cpus;
}

static __attribute__((noinline)) unsigned count_many_cpus(void)
{
	unsigned long mask[MASK_WORDS_MOST];

	return count_cpus(mask, cpu_mask(mask, sizeof mask));
}

unsigned os_cpus(void)
{
	unsigned long mask[MASK_WORDS];
	unsigned cpus = count_cpus(mask, cpu_mask(mask, sizeof mask));

	if (!cpus)
		cpus = count_many_cpus();
	return cpus ? cpus : 1;
}

/*
 * The state of os_random(): 16 bytes that the kernel gave the process at its start, and as many more where
 * os_random_begin() asked for them.  Then no number needs a system call, which a sandbox may punish.
 */
static struct {
	uint64_t seed[4];
	uint64_t turn;
	bool begun;
} dice ARCH_SPARSE;

void os_random_begin(bool secret)
{
	const void *start = (const void *)os_auxiliary(AT_RANDOM);

	if (start)
		__builtin_memcpy(dice.seed, start, 2 * sizeof *dice.seed);
	/* Where it is refused, the kernel's 16 bytes remain. */
	if (secret)
		ENTER(getrandom, &dice.seed[2], 2 * sizeof *dice.seed, GRND_NONBLOCK);
	dice.begun = true;
}

/* One round of SipHash, whose output shows nothing of its key to those who do not know that. */
static void sip_round(uint64_t v[4])
{
	v[0] += v[1];
	v[2] += v[3];
	v[1] = (v[1] << 13 | v[1] >> 51) ^ v[0];
	v[3] = (v[3] << 16 | v[3] >> 48) ^ v[2];
	v[0] = v[0] << 32 | v[0] >> 32;
	v[2] += v[1];
	v[0] += v[3];
	v[1] = (v[1] << 17 | v[1] >> 47) ^ v[2];
	v[3] = (v[3] << 21 | v[3] >> 43) ^ v[0];
	v[2] = v[2] << 32 | v[2] >> 32;
}

/* Keyed with the seed; the message is the number of the turn, and the time, which differs in forked children.
 */
uint64_t os_random(void)
{
	uint64_t turn = __atomic_add_fetch(&dice.turn, 1, __ATOMIC_RELAXED) ^ os_milliseconds() << 32, v[4];

	if (!dice.begun)
		os_random_begin(false);
	__builtin_memcpy(v, dice.seed, sizeof v);
	v[0] ^= 0x736f6d6570736575u;
	v[1] ^= 0x646f72616e646f6du;
	v[2] ^= 0x6c7967656e657261u;
	v[3] ^= 0x7465646279746573u ^ turn;
	sip_round(v);
	sip_round(v);
	v[0] ^= turn;
	v[2] ^= 0xff;
	for (unsigned round = 0; round < 4; round++)
		sip_round(v);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}

int os_rseq_register(void *area, uint32_t bytes, uint32_t flags, uint32_t signature)
{
	return status_of(ENTER(rseq, area, bytes, flags, signature));
}

int os_rseq_unregister(void *area, uint32_t bytes, uint32_t signature)
{
	return status_of(ENTER(rseq, area, bytes, RSEQ_FLAG_UNREGISTER, signature));
}

void os_on_signal(int number, void (*handler)(int))
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};

	(void)os_signal_action(number, &action, NULL);
}

enum { SIGNAL_BYTES = 8 }; /* of a set of signals, as the kernel has it */

void os_signal_mask(const sigset_t *mask, sigset_t *old)
{
	ENTER(rt_sigprocmask, SIG_SETMASK, mask, old, SIGNAL_BYTES);
}

/* What the kernel takes and gives for a struct sigaction. */
struct kernel_action {
	void (*handler)(int);
	unsigned long flags;
#if defined(__x86_64__) || defined(__aarch64__)
	void (*restorer)(void);
#endif
	uint64_t mask;
};
enum { RETURNS_THERE = 0x04000000 }; /* SA_RESTORER: the handler returns to `restorer` */

#if ARCH_HAS_SIGNAL_RETURN
ARCH_DEFINE_SIGNAL_RETURN(os_signal_return);
extern ARCH_INTERNAL void os_signal_return(void);
#endif

static struct kernel_action kernel_action_of(const struct sigaction *action)
{
	struct kernel_action kernel = {.handler = action->sa_handler, .flags = (unsigned)action->sa_flags};

	__builtin_memcpy(&kernel.mask, &action->sa_mask, SIGNAL_BYTES);
#if ARCH_HAS_SIGNAL_RETURN
	kernel.flags |= RETURNS_THERE;
	kernel.restorer = os_signal_return;
#endif
	return kernel;
}

int os_signal_action(int number, const struct sigaction *action, struct sigaction *old)
{
	struct kernel_action wanted, before;

	if (action)
		wanted = kernel_action_of(action);
	int status = status_of(
		ENTER(rt_sigaction, number, action ? &wanted : NULL, old ? &before : NULL, SIGNAL_BYTES));

	if (!status && old) {
		*old = (struct sigaction){.sa_handler = before.handler,
					  .sa_flags = (int)before.flags & ~RETURNS_THERE};
		__builtin_memcpy(&old->sa_mask, &before.mask, SIGNAL_BYTES);
	}
	return status;
}

static bool without_membarrier;

static int membarrier(int command)
{
	return without_membarrier ? ENOSYS : status_of(ENTER(membarrier, command, 0, 0));
}

void os_membarrier_begin(bool allowed)
{
	without_membarrier = !allowed;
	membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ);
	membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
}

/* A child whose memory came by fork has lost the registration; registers again. */
static int registered_membarrier(int command, int registration)
{
	int status = membarrier(command);

	if (status == EPERM) {
		status = membarrier(registration);
		if (!status)
			status = membarrier(command);
	}
	return status;
}

int os_fence_sections(void)
{
	return registered_membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ,
				     MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ);
}

int os_barrier_all_threads(void)
{
	return registered_membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED,
				     MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
}

int os_futex_wait(uint32_t *word, uint32_t expected, const struct timespec *relative)
{
	return status_of(ENTER(futex, word, FUTEX_WAIT_PRIVATE, expected, relative, NULL, 0));
}

int os_futex_wait_until(uint32_t *word, uint32_t expected, const struct timespec *deadline)
{
	/* The kernel rejects a time before the clock's epoch as an error, though it is merely past. */
	if (deadline && deadline->tv_sec < 0)
		return ETIMEDOUT;
	return status_of(ENTER(futex, word, FUTEX_WAIT_BITSET_PRIVATE, expected, deadline, NULL,
			       FUTEX_BITSET_MATCH_ANY));
}

int os_futex_wake(uint32_t *word, int count)
{
	return status_of(ENTER(futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0));
}

void os_nap(long nanoseconds)
{
	struct timespec nap = {.tv_nsec = nanoseconds};
	uint32_t never_woken = 0;

	os_futex_wait(&never_woken, 0, &nap);
}

#if ARCH_HAS_THREAD

ARCH_DEFINE_THREAD(os_clone_thread);
extern ARCH_INTERNAL long os_clone_thread(unsigned long flags, void *stack, uint32_t *id, void *pointer,
					  void (*function)(void));

/* The flags are pthread_create's, which emulators and valgrind know. */
int os_begin_thread(void (*function)(void), void *stack, void *pointer, uint32_t *id)
{
	enum {
		FLAGS = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
			CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID
	};
	sigset_t all, mask;

	memset(&all, 0xff, sizeof all);
	os_signal_mask(&all, &mask);
	int status = status_of(os_clone_thread(FLAGS, stack, id, pointer, function));

	os_signal_mask(&mask, NULL);
	return status;
}

#else

int os_begin_thread(void (*function)(void), void *stack, void *pointer, uint32_t *id)
{
	(void)function, (void)stack, (void)pointer, (void)id;
	return ENOSYS;
}

#endif

#if ARCH_HAS_THREAD

#define STATEMENT(code, k)     ((struct sock_filter)BPF_STMT(code, k))
#define UNLESS_EQUAL(k, jumps) ((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, k, 0, jumps))
#define FIELD(name)            STATEMENT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, name))
#define ALLOW                  STATEMENT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

/* A signal goes to this process alone: a report ends it so. */
int os_confine_thread(void)
{
	static const uint16_t allowed[] = {
		SYS_futex,          SYS_madvise,      SYS_mmap,       SYS_munmap,        SYS_mremap,
		SYS_mprotect,       SYS_mincore,      SYS_membarrier, SYS_clock_gettime, SYS_write,
		SYS_rt_sigprocmask, SYS_rt_sigaction, SYS_exit,
	};
	enum { ALLOWED = sizeof allowed / sizeof *allowed };
	struct sock_filter filter[2 * ALLOWED + 8], *next = filter;

	*next++ = FIELD(arch);
	*next++ = UNLESS_EQUAL(AUDIT_ARCH_X86_64, 2 * ALLOWED + 5);
	*next++ = FIELD(nr);
	for (unsigned i = 0; i < ALLOWED; i++) {
		*next++ = UNLESS_EQUAL(allowed[i], 1);
		*next++ = ALLOW;
	}
	*next++ = UNLESS_EQUAL(SYS_tgkill, 3);
	*next++ = FIELD(args);
	*next++ = UNLESS_EQUAL(os_process_id(), 1);
	*next++ = ALLOW;
	*next++ = STATEMENT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);

	const struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
	int status = status_of(ENTER(prctl, PR_SET_NO_NEW_PRIVS, 1));

	return status ? status : status_of(ENTER(seccomp, SECCOMP_SET_MODE_FILTER, 0, &program));
}

#undef STATEMENT
#undef UNLESS_EQUAL
#undef FIELD
#undef ALLOW

#else

int os_confine_thread(void)
{
	return ENOSYS;
}

#endif

void os_name_thread(const char *name)
{
	(void)ENTER(prctl, PR_SET_NAME, name);
}

uint32_t os_thread_id(void)
{
	return (uint32_t)ENTER(gettid, 0);
}

unsigned os_cpu(void)
{
	unsigned cpu = 0;

	return ENTER(getcpu, &cpu) == 0 ? cpu : 0;
}

/* By the thread's id: once the first thread has ended, the process's own names no memory. */
static long read_own(const struct iovec *to, const struct iovec *from)
{
	return ENTER(process_vm_readv, os_thread_id(), to, 1, from, 1);
}

bool os_can_read(const void *address)
{
	uintptr_t word;
	struct iovec to = {&word, sizeof word}, from = {(void *)address, sizeof word};

	return read_own(&to, &from) == (long)sizeof word;
}

uint64_t os_milliseconds(void)
{
	struct timespec now;

	if (os_read_clock(CLOCK_MONOTONIC_COARSE, &now))
		return 0;
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static uint64_t nanoseconds_of(clockid_t clock)
{
	struct timespec now;

	if (os_read_clock(clock, &now))
		return 0;
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

uint64_t os_cpu_nanoseconds(void)
{
	return nanoseconds_of(CLOCK_PROCESS_CPUTIME_ID);
}

uint64_t os_thread_nanoseconds(void)
{
	return nanoseconds_of(CLOCK_THREAD_CPUTIME_ID);
}

/* The copy of standard error, -1 for none, and the file that it refers to. */
static int kept_error = -1;
static bool at_exit ARCH_SPARSE; /* the program may have closed or redirected its own */
static struct {
	dev_t device;
	ino_t inode;
} led_to ARCH_SPARSE;

void os_keep_standard_error(void)
{
	struct stat status;

	if (ENTER(fstat, STDERR_FILENO, &status))
		return;
	led_to.device = status.st_dev;
	led_to.inode = status.st_ino;
	/* Out of the way of programs that rely on the lowest numbers. */
	kept_error = (int)ENTER(fcntl, STDERR_FILENO, F_DUPFD_CLOEXEC, 100);
}

void os_return_to_kept_error(void)
{
	at_exit = true;
}

static bool leads_there(int file)
{
	struct stat status;

	return ENTER(fstat, file, &status) == 0 && status.st_dev == led_to.device &&
	       status.st_ino == led_to.inode;
}

/*
 * A program that closes all files, as daemons do, closes the copy too; its number, and that of standard
 * error, may then belong to the program's own files.  Returns -1 if neither is the old standard error:
 * nobody would read it.
 */
static int error_stream(void)
{
	if (kept_error < 0 || !at_exit)
		return STDERR_FILENO;
	if (leads_there(kept_error))
		return kept_error;
	return leads_there(STDERR_FILENO) ? STDERR_FILENO : -1;
}

int os_write(int file, const char *text, size_t length)
{
	while (length > 0) {
		long written = ENTER(write, file, text, length);

		if (written < 0 && written != -EINTR)
			return status_of(written);
		if (written > 0) {
			text += written;
			length -= (size_t)written;
		}
	}
	return 0;
}

void os_write_error(const char *text, size_t length)
{
	int file = error_stream();

	/* A failure here could not be reported anywhere. */
	if (file >= 0)
		(void)os_write(file, text, length);
}

int os_read_memory(uintptr_t address, void *buffer, size_t bytes)
{
	struct iovec local = {buffer, bytes}, remote = {(void *)address, bytes};

	return read_own(&local, &remote) == (long)bytes ? 0 : EFAULT;
}

int64_t os_time_of_day(void)
{
	struct timespec now;

	return os_read_clock(CLOCK_REALTIME, &now) ? 0 : (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

uint32_t os_process_id(void)
{
	return (uint32_t)ENTER(getpid, 0);
}

int os_create_file(const char *path, int *file)
{
	*file = (int)ENTER(openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	return status_of(*file);
}

void os_close(int file)
{
	ENTER(close, file);
}

size_t os_read_file(const char *path, char *text, size_t bytes)
{
	size_t length = 0;
	int file = (int)ENTER(openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);

	if (file < 0)
		return 0;
	while (length < bytes) {
		long got = ENTER(read, file, text + length, bytes - length);

		if (got <= 0)
			break;
		length += (size_t)got;
	}
	os_close(file);
	return length;
}
