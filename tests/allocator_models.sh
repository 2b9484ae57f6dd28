#!/bin/sh
# Checks the models of the allocator exhaustively with spin, and that spin finds each rule that is left out.
# With CPUSLAB_SOAK set, at larger bounds (minutes, and a few gigabytes of memory).
set -eu
. "$(dirname "$0")/shared/models.sh"

one_vcpu='-DVCPUS=1 -DCALLS=3 -DMAGAZINES=4 -DDRAINS=0'
full='-DFULL=1 -DOBJECTS=3 -DSLABS=1 -DCALLS=2'

check magazine 0
check magazine 0 -DVCPUS=1 -DCALLS=2 -DDRAINS=0
check_plants magazine 'NO_ABORT NO_FENCE TAKE INSTALL'
# shellcheck disable=SC2086
check_plants magazine SPARE $one_vcpu

check depot 0
check_plants depot 'STALE LATE GLANCED KEPT DRAINED GROWN EMPTIED UNCOUNTED'

check slab 0
check slab 0 -DCONSTRUCT=0
check_plants slab 'PUSH_LATE NO_ADOPT KEPT RELEASE NO_LOCK EARLY UNSETTLED WAIT'

check linked 0
check linked 0 -DMIN_PARTIAL=1
# shellcheck disable=SC2086
check linked 0 $full
check_plants linked 'LATE_LOCK LEAVE_FULL LIST_ALONE NO_THAW'
# shellcheck disable=SC2086
check_plants linked STORE $full

check fork 0 -DOBJECTS=3 -DCALLS=5
check_plants fork 'FREE WORD NO_REPAIR NO_RESET NO_WAIT BOTH'

if [ "${CPUSLAB_SOAK:-0}" != 0 ]; then
	# shellcheck disable=SC2086
	check magazine 0 $one_vcpu
	check magazine 0 -DCAPACITY=2 -DOBJECTS=3
	check depot 0 -DCALLS=4 -DMAGAZINES=3 -DOBJECTS=4
	check slab 0 -DTHREADS=3 -DCALLS=2 -DOBJECTS=2
	check linked 0 -DTHREADS=3 -DCALLS=2
	check linked 0 -DCALLS=4
	check fork 0 -DOBJECTS=4 -DCALLS=10
fi
