#!/bin/sh
# Checks the models of the allocator exhaustively with spin, and that spin finds each rule that is left out.
# With CPUSLAB_SOAK set, at larger bounds (minutes, and a few gigabytes of memory).
set -eu
. "$(dirname "$0")/shared/models.sh"

one_vcpu='-DVCPUS=1 -DCALLS=3 -DMAGAZINES=4 -DDRAINS=0'
returns='-DRETURNS=1 -DVCPUS=1 -DMAGAZINES=4 -DOBJECTS=3'
full='-DFULL=1 -DOBJECTS=3 -DSLABS=1 -DCALLS=2'

check magazine 0
check magazine 0 -DVCPUS=1 -DCALLS=2 -DDRAINS=0
check magazine 0 -DALONE=1 -DVCPUS=1 -DCALLS=2 -DDRAINS=0
# shellcheck disable=SC2086
check magazine 0 $returns -DDRAINS=0
check magazine 0 -DHINDER=1
check magazine 0 -DHINDER=1 -DVCPUS=1 -DCALLS=2 -DDRAINS=0
check_plants magazine 'NO_ABORT NO_FENCE FENCE INSTALL'
check_plants magazine TAKE -DVCPUS=1 -DCALLS=2 -DDRAINS=0
# shellcheck disable=SC2086
{
	check_plants magazine SPARE $one_vcpu
	check_plants magazine DISSOLVE -DALONE=1 $one_vcpu
	check_plants magazine HINDERED -DHINDER=1 -DVCPUS=1 -DCALLS=2 -DDRAINS=0
	check_plants magazine TRADE $returns -DDRAINS=0
}

check depot 0
check_plants depot 'STALE LATE GLANCED KEPT DRAINED GROWN EMPTIED UNCOUNTED'

parted='-DFORK=1 -DTHREADS=1 -DWAITING=2'
check portions 0
# shellcheck disable=SC2086
check portions 0 $parted
check_plants portions 'FORGOTTEN SKIPPED NO_WALK TWICE UNCOUNTED GATHERED ALL'
# shellcheck disable=SC2086
check_plants portions 'TAKEN HEAD UNREPAIRED HELD' $parted

batch='-DBATCH=2 -DHOME=1 -DCALLS=2 -DOBJECTS=2'
hollow='-DHOLLOW=1 -DCALLS=2 -DOBJECTS=2'
alone='-DALONE=1 -DBATCH=2 -DCALLS=2 -DOBJECTS=2'
check slab 0
check_plants slab 'PUSH_LATE NO_ADOPT KEPT RELEASE NO_LOCK EARLY UNSETTLED WAIT'
# shellcheck disable=SC2086
{
	check slab 0 $batch
	check_plants slab 'ORDER REFUSED' $batch
	check slab 0 $hollow
	check_plants slab 'UNLOCKED LAST' $hollow
	check slab 0 $alone
	check_plants slab 'ALONE COUNTED' $alone
}

check linked 0
check linked 0 -DMIN_PARTIAL=1
# shellcheck disable=SC2086
check linked 0 $full
check_plants linked 'LATE_LOCK LEAVE_FULL LIST_ALONE NO_THAW'
# shellcheck disable=SC2086
check_plants linked STORE $full

check fork 0 -DOBJECTS=3 -DCALLS=5
check fork 0 -DAGAIN=1 -DCALLS=4
check_plants fork 'FREE WORD NO_REPAIR NO_RESET NO_WAIT BOTH UNLOCKED'
check_plants fork UNFINISHED -DAGAIN=1

if [ "${CPUSLAB_SOAK:-0}" != 0 ]; then
	# shellcheck disable=SC2086
	check magazine 0 $one_vcpu
	check magazine 0 -DCAPACITY=2 -DOBJECTS=3
	check magazine 0 -DTOGETHER=1
	check magazine 0 -DALONE=1
	# shellcheck disable=SC2086
	check magazine 0 $returns
	# shellcheck disable=SC2086
	check magazine 0 $returns -DCALLS=2 -DDRAINS=0
	check depot 0 -DCALLS=4 -DMAGAZINES=3 -DOBJECTS=4
	check portions 0 -DWAITING=2
	check portions 0 -DFORK=1 -DCALLS=1 -DWAITING=1 -DMAGAZINES=2 -DOBJECTS=2
	check slab 0 -DCONSTRUCT=0
	# shellcheck disable=SC2086
	check slab 0 $batch -DHOLLOW=1
	# shellcheck disable=SC2086
	check slab 0 $alone -DHOLLOW=1
	check slab 0 -DTHREADS=3 -DCALLS=2 -DOBJECTS=2
	check linked 0 -DTHREADS=3 -DCALLS=2
	check linked 0 -DCALLS=4
	check fork 0 -DOBJECTS=4 -DCALLS=10
fi
