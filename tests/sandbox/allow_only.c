/* SPDX-License-Identifier: MIT */
/*
 * allow_only [-w FILE] [NUMBER...] -- PROGRAM...: runs a program in a sandbox that kills for every system
 * call but these.  Or writes the sandbox to a file, as bwrap reads it.
 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { MOST = 2000 };

int main(int argc, char **argv)
{
	static struct sock_filter filter[MOST] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
	const char *file = argc > 2 && strcmp(argv[1], "-w") == 0 ? argv[2] : NULL;
	unsigned short length = 1;

	for (argv += file ? 3 : 1; *argv && strcmp(*argv, "--") != 0 && length < MOST - 1; argv++) {
		filter[length++] =
			(struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)atoi(*argv), 0, 1);
		filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	}
	filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
	if (file) {
		FILE *to = fopen(file, "we");

		return !to || fwrite(filter, sizeof *filter, length, to) != length || fclose(to) != 0;
	}
	struct sock_fprog program = {length, filter};

	if (!*argv || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) != 0)
		return 77;
	execvp(argv[1], argv + 1);
	return 9;
}
