#!/bin/bash
# SPDX-License-Identifier: MIT
# Where each thread has a slot of its own, malloc_stats() says why; in the other modes there is nothing to say.
set -eu
[ -z "${CPUSLAB_SANITIZE:-}" ] || { echo "skipped: a sanitizer's malloc would be the one that is seen"; exit 77; }
build=${CPUSLAB_BUILD:-build}
export LD_PRELOAD=$build/libcpuslab.so

# expect PATTERN: of the first line of the statistics, under the options that $options adds.
expect() {
	local line
	line=$(CPUSLAB_OPTIONS=stats_at_exit:true${options:-} sort /dev/null 2>&1 | head -n 1)
	[[ $line =~ $1 ]] || {
		echo "'$line', but expected '$1'" >&2
		exit 1
	}
}

options=,vcpu:slot expect ' vCPU mode slot \(by the option vcpu\)$'
if [ "$(cd "$build" && LD_PRELOAD='' ./cpuslab version | sed -n 's/^vcpu: *//p')" = slot ]; then
	expect ' vCPU mode slot \(no restartable sequences here\)$'
	exit 0
fi
expect ' vCPU mode (mm_cid|cpu_id)$'
LD_PRELOAD=$build/tests/librseq_hidden.so:$LD_PRELOAD
expect ' vCPU mode slot \(libc has restartable sequences, but does not say where\)$'
# Where libc has none, they are the library's own.
GLIBC_TUNABLES=glibc.pthread.rseq=0 expect ' vCPU mode (mm_cid|cpu_id)$'
