/* SPDX-License-Identifier: MIT */
#include "os/enter.h"

#include <stdint.h>
#include <sys/auxv.h>
#include <sys/syscall.h>

#include "arch/arch.h"
#include "arch/system_call.h"
#include "os/image.h"
#include "os/os.h"

__attribute__((weak)) long os_system_call(long number, long a, long b, long c, long d, long e, long f)
{
	return arch_system_call(number, a, b, c, d, e, f);
}

/*
 * The kernel's own code in each process, which reads most clocks without a system call.  Emulators, valgrind
 * and the kernel's option vdso=0 leave it out.
 */
#if defined(__aarch64__)
#define CLOCK_FUNCTION "__kernel_clock_gettime"
#else
#define CLOCK_FUNCTION "__vdso_clock_gettime"
#endif

typedef int clock_function(clockid_t clock, struct timespec *now);

static int ask_kernel(clockid_t clock, struct timespec *now)
{
	return (int)os_system_call(SYS_clock_gettime, clock, (long)now, 0, 0, 0, 0);
}

/* Two threads may both look for it, and find the same. */
static inline __attribute__((always_inline)) clock_function *find_clock(void)
{
	clock_function *found = (clock_function *)image_symbol(os_auxiliary(AT_SYSINFO_EHDR), CLOCK_FUNCTION);

	return found ? found : ask_kernel;
}

__attribute__((weak)) int os_read_clock(clockid_t clock, struct timespec *now)
{
	static clock_function *known;
	clock_function *read = __atomic_load_n(&known, __ATOMIC_RELAXED);

	if (!read) {
		read = find_clock();
		__atomic_store_n(&known, read, __ATOMIC_RELAXED);
	}
	return -read(clock, now);
}
