#!/bin/sh
# SPDX-License-Identifier: MIT
# Tools that stop a program at each instruction or system call come through malloc and free: gdb's software watchpoints and
# steps by instruction, with one thread and with several, strace, and perf's fastest sampling.
set -eu

# shellcheck source=shared/as_shipped.sh
. "$(dirname "$0")/shared/as_shipped.sh"
needs gdb "${CC:=cc}"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

cat >stepped.c <<'END'
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

volatile int watched;
static volatile int stop;

static void use(void)
{
	char *one = malloc(40), *other = calloc(1, 300);

	strcpy(one, "stepped");
	one = realloc(one, 400);
	if (strcmp(one, "stepped") != 0)
		abort();
	free(other);
	free(one);
}

static void *work(void *unused)
{
	while (!stop)
		free(malloc(40));
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t thread;

	(void)argv;
	use();
	if (argc > 1 && pthread_create(&thread, NULL, work, NULL) != 0)
		abort();
	watched = 1;
	use();
	watched = 7;
	stop = 1;
	if (argc > 1)
		pthread_join(thread, NULL);
	return 0;
}
END
"$CC" -g -O0 -o stepped stepped.c -pthread

# stepped WHAT EXPECTED ARGUMENT OPTIONS COMMAND...: what gdb prints, from the line before the calls on.
stepped() {
	what=$1 expected=$2 argument=$3 options=$4
	shift 4
	set -- -ex "break $(grep -n 'watched = 1' stepped.c | cut -d: -f1)" -ex run "$@"
	LD_BIND_NOW=1 timeout -s KILL 300 gdb -nx -q -batch -ex 'set debuginfod enabled off' \
		-ex 'set can-use-hw-watchpoints 0' -ex "set environment LD_PRELOAD $library" \
		-ex "set environment CPUSLAB_OPTIONS $options" "$@" --args ./stepped ${argument:+"$argument"} >said 2>&1 || true
	if grep -q "$expected" said; then
		echo "$what${argument:+, with another thread}, $options: came through"
	else
		echo "$what${argument:+, with another thread}, $options: not '$expected', but" >&2
		tail -n 20 said >&2
		exit 1
	fi
}

end=$(grep -n 'watched = 7' stepped.c | cut -d: -f1)
for options in vcpu:auto hardened:1; do
	stepped 'a software watchpoint' 'New value = 7' '' "$options" -ex 'watch watched' -ex continue -ex continue
done
stepped 'a software watchpoint' 'New value = 7' threads vcpu:auto \
	-ex 'set scheduler-locking off' -ex 'watch watched' -ex continue -ex continue
stepped 'steps by instruction' "^arrived at $end" '' vcpu:auto -ex 'python
while gdb.selected_frame().find_sal().line != '"$end"' or gdb.selected_frame().name() != "main":
    gdb.execute("stepi", to_string=True)
print("arrived at", gdb.selected_frame().find_sal().line)
end'

if command -v strace >/dev/null; then
	LD_PRELOAD=$library strace -f -o strace.out ./stepped threads
	echo "strace: came through"
else
	echo "strace: not here"
fi
perf=$(command -v perf || true)
if [ -n "$perf" ] && "$perf" record -q -F max -o perf.data true >/dev/null 2>&1; then
	LD_PRELOAD=$library "$perf" record -q -F max -o perf.data ./stepped threads >/dev/null 2>&1
	echo "perf: came through"
else
	echo "perf: not here, or not permitted"
fi
