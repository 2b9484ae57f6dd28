#!/bin/sh
# Checks the models of the locks exhaustively with spin, and that spin finds each rule that is left out.
# With CPUSLAB_SOAK set, at larger bounds (minutes, and a few gigabytes of memory).
set -eu
. "$(dirname "$0")/shared/models.sh"

check spinlock 0
check spinlock 0 -DPOLL=1
for broken in 1 2 3 4; do
	check spinlock 1 -DBREAK=$broken
done
check pagelock 0 -DLIVES=2
check pagelock 0 -DLIVES=1 -DROUNDS=2 -DSTALE=1
check pagelock 0 -DLIVES=1 -DROUNDS=2 -DTIMED=0 -DRACES=0
check pagelock 0 -DLIVES=1 -DWATCHER=1
check pagelock 0 -DLIVES=1 -DTIMED=0 -DMIXED=1
check pagelock 0 -DLIVES=1 -DTIMED=0 -DAWAKE=2 -DLIGHT=1
for broken in 1 2 3 5 7; do
	check pagelock 1 -DBREAK=$broken
done
for broken in 4 6; do
	check pagelock 1 -DROUNDS=2 -DBREAK=$broken
done
check pagelock 1 -DLIVES=1 -DROUNDS=3 -DTIMED=0 -DMIXED=1 -DBREAK=8
check pagelock 1 -DLIVES=1 -DTIMED=0 -DAWAKE=2 -DLIGHT=1 -DBREAK=9

if [ "${CPUSLAB_SOAK:-0}" != 0 ]; then
	check spinlock 0 -DROUNDS=4
	check spinlock 0 -DTHREADS=4 -DROUNDS=1
	check pagelock 0 -DLIVES=2 -DROUNDS=2 -DTIMED=3
	check pagelock 0 -DLIVES=1 -DROUNDS=3 -DRACES=2
	check pagelock 0 -DLIVES=1 -DROUNDS=2 -DWATCHER=1 -DTIMED=3
	check pagelock 0 -DLIVES=1 -DTHREADS=4 -DTIMED=1
	check pagelock 0 -DLIVES=1 -DTHREADS=4 -DTIMED=0 -DAWAKE=2 -DLIGHT=1
	check pagelock 0 -DLIVES=1 -DROUNDS=2 -DTIMED=1 -DAWAKE=2 -DLIGHT=1
fi
