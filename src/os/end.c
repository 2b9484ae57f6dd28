/* SPDX-License-Identifier: MIT */
/* How the library ends a process that is broken: by its own abort and raise (libc/names.h). */
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>

#include "libc/libc.h"
#include "os/enter.h"

enum { SIGNAL_BYTES = 8 };

int cpuslab_libc_raise(int signal)
{
	long process = os_system_call(SYS_getpid, 0, 0, 0, 0, 0, 0);
	long thread = os_system_call(SYS_gettid, 0, 0, 0, 0, 0, 0);

	return os_system_call(SYS_tgkill, process, thread, signal, 0, 0, 0) ? -1 : 0;
}

/*
 * As C and POSIX say: a blocked signal arrives all the same, and where the program's handler returns, or the
 * signal is ignored, the process ends nevertheless.
 */
_Noreturn void cpuslab_libc_abort(void)
{
	uint64_t only = 1ul << (SIGABRT - 1);
	uint64_t by_default[4] = {0}; /* no handler, no flags, an empty mask */

	os_system_call(SYS_rt_sigprocmask, SIG_UNBLOCK, (long)&only, 0, SIGNAL_BYTES, 0, 0);
	cpuslab_libc_raise(SIGABRT);
	os_system_call(SYS_rt_sigaction, SIGABRT, (long)by_default, 0, SIGNAL_BYTES, 0, 0);
	cpuslab_libc_raise(SIGABRT);
	__builtin_trap();
}
