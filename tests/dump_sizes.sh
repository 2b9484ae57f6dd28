#!/bin/sh
# SPDX-License-Identifier: MIT
# A core dump is at most 1.1 times the resident size plus 4 MiB, counted in bytes of the file, holes included: gdb's gcore,
# also without the kernel's filter, and the kernel's own dump; at rest, with 200 MB of objects, and after they were freed.
# In the dump a debugger finds objects and what the page map says of them.
set -eu

# shellcheck source=shared/as_shipped.sh
. "$(dirname "$0")/shared/as_shipped.sh"
needs gdb "${CC:=cc}"
folder=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"

cat >dumped.c <<'END'
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static void **objects;
char *kept, *large;

static void *churn(void *unused)
{
	for (;;) {
		free(malloc(100));
		usleep(10000);
	}
	return unused;
}

/* dumped SIZE MEGABYTES freed|held wait|abort */
int main(int argc, char **argv)
{
	size_t size = strtoul(argv[1], NULL, 10), count = (strtoul(argv[2], NULL, 10) << 20) / size;
	struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
	pthread_attr_t attributes;
	pthread_t thread;
	char line[256];
	FILE *status;

	(void)argc;
	kept = strcpy(malloc(64), "an object that is kept");
	large = strcpy(malloc(300000), "a large object that is kept");
	memset(large + 100, 1, 299900);
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, 64 << 10);
	for (int i = 0; i < 3; i++)
		if (pthread_create(&thread, &attributes, churn, NULL) != 0)
			return 1;
	objects = malloc(count * sizeof *objects + 1);
	for (size_t i = 0; i < count; i++)
		objects[i] = memset(malloc(size), 1, size);
	if (strcmp(argv[3], "freed") == 0) {
		for (size_t i = 0; i < count; i++)
			free(objects[i]);
		free(objects);
		malloc_trim(0);
		/* What is used again is contained again. */
		free(kept);
		for (size_t i = 0; i < 30000; i++)
			kept = memset(malloc(64), 1, 64);
		strcpy(kept, "an object that is kept");
	}
	status = fopen("/proc/self/status", "r");
	while (fgets(line, sizeof line, status))
		if (strncmp(line, "VmRSS", 5) == 0)
			fputs(line, stdout);
	fclose(status);
	fflush(stdout);
	setrlimit(RLIMIT_CORE, &limit);
	if (strcmp(argv[4], "abort") == 0)
		abort();
	for (;;)
		pause();
}
END
"$CC" -g -O1 -o dumped dumped.c -pthread

failed=0
# must_fit WHAT FILE: the dump's size, and what a debugger finds in it.
must_fit() {
	bytes=$(stat -c %s "$2") resident=$(awk '{ print $2 * 1024 }' out)
	most=$((resident + resident / 10 + (${spare:-4} << 20)))
	printf '%-60s %9d KiB of %d\n' "$1" $((bytes / 1024)) $((most / 1024))
	[ "$bytes" -le "$most" ] || failed=1
	gdb -nx -q -batch -ex 'set debuginfod enabled off' -ex 'print (char *)kept' -ex 'print (char *)large' \
		-ex "print page_front.map[(unsigned long)kept >> 12] != 0" ./dumped "$2" >found 2>&1 || true
	for expected in 'an object that is kept' 'a large object that is kept' '^.3 = 1$'; do
		grep -q "$expected" found || {
			echo "$1: gdb does not find '$expected' in the dump" >&2
			tail -n 5 found >&2
			failed=1
		}
	done
	rm -f "$2"
}

# dump WHAT OPTIONS SIZE MEGABYTES STATE [COMMAND]: by gdb.
dump() {
	what=$1 options=$2 size=$3 megabytes=$4 state=$5
	shift 5
	: >out
	CPUSLAB_OPTIONS=$options LD_PRELOAD=$library ./dumped "$size" "$megabytes" "$state" wait >out &
	pid=$!
	until grep -q VmRSS out; do sleep 0.05; done
	gdb -nx -q -batch -ex 'set debuginfod enabled off' "$@" -ex 'generate-core-file core.gdb' -p "$pid" >said 2>&1 || {
		tail -n 5 said
		echo "skipped: gdb cannot attach"
		exit 77
	}
	kill "$pid"
	wait "$pid" 2>/dev/null || true
	pid=
	must_fit "$what, $options" core.gdb
}

for options in vcpu:auto vcpu:slot reserve:0 guard:1000 profile:512K; do
	dump 'at rest' "$options" 100 0 held
done
for options in vcpu:auto reserve:0; do
	dump '200 MB in small objects' "$options" 100 200 held
	dump '200 MB in small objects, freed' "$options" 100 200 freed
done
dump '200 MB in small objects' hardened:1,hardened_mappings:true 100 200 held
# Of another size than the threads use: each takes a slab somewhere, with what dumps have of its neighbours.
# Where the threads took their slabs is chance: 13.2 to 15.7 MiB seen.
spare=6
dump '200 MB in small objects, freed' hardened:1,hardened_mappings:true 60 200 freed
spare=4
dump '200 MB in large objects' vcpu:auto 1000000 200 held
dump '200 MB in large objects, freed' guard:1000 1000000 200 freed
dump '200 MB freed, without the filter' vcpu:slot 10000 200 freed -ex 'set use-coredump-filter off'

# The kernel's, where it writes a file into the folder.
if [ "$(cat /proc/sys/kernel/core_pattern)" = core ]; then
	while read -r options size megabytes state; do
		CPUSLAB_OPTIONS=$options LD_PRELOAD=$library ./dumped "$size" "$megabytes" "$state" abort >out 2>/dev/null || true
		for file in core core.*; do
			[ ! -e "$file" ] || must_fit "$megabytes MB, $state, $options, by the kernel" "$file"
		done
	done <<-END
		vcpu:auto 1000 200 held
		vcpu:auto 1000 200 freed
		hardened:1 100 0 held
		hardened:1 60 200 freed
	END
fi
exit "$failed"
