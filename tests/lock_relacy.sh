#!/bin/sh
# The locks' own sources under relacy, which simulates the C11 memory model (Debian package relacy-dev); then the
# same with one memory order after another made too weak, each of which must be found.
# With CPUSLAB_SOAK set, a hundred times as many executions.
set -eu
cd "$(dirname "$0")/.."
[ -e /usr/include/relacy/relacy.hpp ] || { echo "skipped: no relacy (Debian package relacy-dev)"; exit 77; }
# The same sources in every variant: once is enough.
case ${CPUSLAB_BUILD_TYPE:-Release}${CPUSLAB_COMPILER:-GNU} in
ReleaseGNU) ;;
*) echo "skipped: shown by the release build with gcc"; exit 77 ;;
esac
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# Half of the time is relacy's templates, which clang compiles sooner, and to a faster program.
cxx=$(scripts/clang clang++ 2>/dev/null || command -v g++)
executions=20000
[ "${CPUSLAB_SOAK:-0}" = 0 ] || executions=2000000

# build NAME: from the copy of include/ and src/ in $folder
build() {
	objects=
	for source in "$folder/src/lock/pagelock.c" "$folder/src/lock/spinlock.c" "$folder/src/lock/mcs.c" \
		tests/models/relacy/subject.c; do
		object=$(basename "$source").o
		gcc -std=gnu17 -D_GNU_SOURCE -O1 -include tests/models/relacy/atomics.h -I"$folder/include" \
			-I"$folder/src" -c "$source" -o "$folder/$object"
		objects="$objects $object"
	done
	[ -e "$folder/locks.o" ] || "$cxx" -std=c++11 -O1 -w -c tests/models/relacy/locks.cc -o "$folder/locks.o"
	# shellcheck disable=SC2086
	(cd "$folder" && g++ locks.o $objects -pthread -o "$1")
}

fresh() {
	rm -rf "$folder/include" "$folder/src"
	cp -r include src "$folder"
	# One look, then sleep: a patient waiter would hardly ever park here, where every look is a step.
	sed -i 's/LOCK_LOOKS = [0-9]*, LOCK_PAUSES = [0-9]*/LOCK_LOOKS = 0, LOCK_PAUSES = 1/' "$folder/src/lock/lock.h"
	sed -i 's/enum { LOOKS = [0-9]* }/enum { LOOKS = 1 }/' "$folder/src/lock/mcs.c"
	! cmp -s src/lock/lock.h "$folder/src/lock/lock.h" && ! cmp -s src/lock/mcs.c "$folder/src/lock/mcs.c"
}

fresh
build right
"$folder/right" "$executions" >"$folder/log" || { head -c 6000 "$folder/log"; exit 1; }
grep passed "$folder/log"
# The same where the lock has learned that several waiters may be awake: see mostly_free.
sed -i 's/FOUND_FREE_OFTEN = [0-9]*/FOUND_FREE_OFTEN = 0/' "$folder/src/lock/pagelock.c"
! cmp -s src/lock/pagelock.c "$folder/src/lock/pagelock.c"
build right
"$folder/right" "$executions" >"$folder/log" || { head -c 6000 "$folder/log"; exit 1; }
grep passed "$folder/log"

# file, from, to: the first occurrence after a line that matches `after`.  Not here: orders that only guard plain
# stores of the locks' own (a node's first values), which the simulation does not see.
while IFS='|' read -r file after from to; do
	fresh
	cp "$folder/$file" "$folder/before"
	sed -i "/$after/,\$ { 0,/$from/ s/$from/$to/ }" "$folder/$file"
	cmp -s "$folder/before" "$folder/$file" && { echo "nothing to weaken: $file, $after"; exit 1; }
	build weak
	# Some need a schedule that only one in a hundred thousand executions has.
	if "$folder/weak" 20000 >"$folder/log" 2>&1 && "$folder/weak" 400000 >"$folder/log" 2>&1; then
		echo "not found: $file, after '$after': $from as $to"
		exit 1
	fi
	echo "found: $file, after '$after': $from as $to"
done <<'END'
include/cpuslab/lock.h|bool cpuslab_clear_bit_unlock_is_negative_byte|__ATOMIC_RELEASE|__ATOMIC_RELAXED
include/cpuslab/lock.h|bool cpuslab_xor_unlock_is_negative_byte|__ATOMIC_RELEASE|__ATOMIC_RELAXED
include/cpuslab/lock.h|bool cpuslab_pagelock_lock_fast|__ATOMIC_ACQUIRE|__ATOMIC_RELAXED
include/cpuslab/lock.h|void cpuslab_spin_lock(|__ATOMIC_ACQUIRE|__ATOMIC_RELAXED
include/cpuslab/lock.h|void cpuslab_spin_unlock(|__ATOMIC_RELEASE|__ATOMIC_RELAXED
include/cpuslab/lock.h|void cpuslab_mcs_lock(|__ATOMIC_ACQ_REL|__ATOMIC_RELAXED
include/cpuslab/lock.h|void cpuslab_mcs_unlock(|__ATOMIC_RELEASE|__ATOMIC_RELAXED
src/lock/mcs.c|void cpuslab_mcs_lock_slow|__ATOMIC_ACQUIRE|__ATOMIC_RELAXED
src/lock/mcs.c|void cpuslab_mcs_unlock_slow|__ATOMIC_ACQ_REL|__ATOMIC_RELAXED
src/lock/pagelock.c|static void tell(|__ATOMIC_ACQ_REL|__ATOMIC_RELAXED
src/lock/pagelock.c|static bool serve_free_lock|__ATOMIC_ACQUIRE|__ATOMIC_RELAXED
src/lock/pagelock.c|static bool wait_until_told|__ATOMIC_ACQUIRE|__ATOMIC_RELAXED
src/lock/pagelock.c|static enum attempt take_or_queue|__ATOMIC_ACQUIRE|__ATOMIC_RELAXED
src/lock/pagelock.c|^int cpuslab_pagelock_wait|__ATOMIC_ACQUIRE|__ATOMIC_RELAXED
END
