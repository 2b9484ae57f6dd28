#!/bin/bash
# SPDX-License-Identifier: MIT
# Where each thread has a slot of its own, malloc_stats() and `cpuslab info` say why; in the other modes there is nothing to say.
set -eu
# shellcheck source-path=SCRIPTDIR source=shared/sight.bash
. "$(dirname "$0")/shared/sight.bash"
library=$build/libcpuslab.so

# expect PATTERN: what both say after "vCPU mode ", under the options that $options adds.
expect() {
	local line
	export CPUSLAB_OPTIONS=stats_at_exit:true${options:-}
	line=$(LD_PRELOAD=$library sort /dev/null 2>&1 | head -n 1)
	[[ $line =~ \ vCPU\ mode\ $1$ ]] || fail "'$line', but expected '$1'"
	begin "$build/tests/target_crowd" 1 1 2>/dev/null
	line=$("$cpuslab" info -T "$pid" | head -n 1)
	[[ $line =~ \ vCPU\ mode\ $1,\ [0-9]+\ vCPUs?\ used$ ]] || fail "info: '$line', but expected '$1'"
	unset CPUSLAB_OPTIONS
}

options=,vcpu:slot expect 'slot \(by the option vcpu\)'
if [ "$(cd "$build" && ./cpuslab version | sed -n 's/^vcpu: *//p')" = slot ]; then
	expect 'slot \(no restartable sequences here\)'
	exit 0
fi
expect '(mm_cid|cpu_id)'
library=$build/tests/librseq_hidden.so:$library
expect 'slot \(libc has restartable sequences, but does not say where\)'
# Where libc has none, they are the library's own.
GLIBC_TUNABLES=glibc.pthread.rseq=0 expect '(mm_cid|cpu_id)'
