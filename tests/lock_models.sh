#!/bin/sh
# Checks the models of the locks exhaustively with spin, and that spin finds each rule that is left out.
# With CPUSLAB_SOAK set, at larger bounds (minutes, and a few gigabytes of memory).
set -eu
cd "$(dirname "$0")/models"
command -v spin >/dev/null || { echo "skipped: no spin (Debian package spin)"; exit 77; }
# The same sources in every variant: once is enough.
case ${CPUSLAB_BUILD_TYPE:-Release}${CPUSLAB_COMPILER:-GNU} in
ReleaseGNU) ;;
*) echo "skipped: shown by the release build with gcc"; exit 77 ;;
esac
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# check MODEL expected-errors DEFINITION...
check() {
	model=$1 expected=$2
	shift 2
	cp "$model.pml" "$folder"
	(
		cd "$folder"
		spin -a "$@" "$model.pml" >spin.log || { cat spin.log; exit 1; }
		"${CC:-cc}" -O2 -DSAFETY -DCOLLAPSE -o pan pan.c
		./pan -m2000000 >pan.log
	)
	errors=$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' "$folder/pan.log")
	states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' "$folder/pan.log")
	echo "$model $*: $states states, $errors errors"
	if grep -q -e 'max search depth too small' -e 'out of memory' "$folder/pan.log"; then
		echo "the search was not exhaustive"
		exit 1
	fi
	if [ "$errors" != "$expected" ]; then
		cat "$folder/pan.log"
		[ "$expected" != 0 ] || (cd "$folder" && spin -t -p -g "$@" "$model.pml" | tail -n 60)
		exit 1
	fi
}

check spinlock 0
check spinlock 0 -DPOLL=1
for broken in 1 2 3 4; do
	check spinlock 1 -DBREAK=$broken
done
check pagelock 0 -DLIVES=2
check pagelock 0 -DLIVES=1 -DROUNDS=2 -DSTALE=1
check pagelock 0 -DLIVES=1 -DROUNDS=2 -DTIMED=0 -DRACES=0
check pagelock 0 -DLIVES=1 -DWATCHER=1
for broken in 1 2 3 5; do
	check pagelock 1 -DBREAK=$broken
done
for broken in 4 6; do
	check pagelock 1 -DROUNDS=2 -DBREAK=$broken
done

if [ "${CPUSLAB_SOAK:-0}" != 0 ]; then
	check spinlock 0 -DROUNDS=4
	check spinlock 0 -DTHREADS=4 -DROUNDS=1
	check pagelock 0 -DLIVES=2 -DROUNDS=2 -DTIMED=3
	check pagelock 0 -DLIVES=1 -DROUNDS=3 -DRACES=2
	check pagelock 0 -DLIVES=1 -DROUNDS=2 -DWATCHER=1 -DTIMED=3
	check pagelock 0 -DLIVES=1 -DTHREADS=4 -DTIMED=1
fi
