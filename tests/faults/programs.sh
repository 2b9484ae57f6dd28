#!/bin/bash
# Real programs of which one system call of the allocator fails, for a selection of them from the first to the
# last (CPUSLAB_SOAK: each).  Such a program does its work, or says that it has no memory; it is never ended by a
# signal but its own abort(), and the allocator never says that the heap is broken.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
selection=12
[ -z "${CPUSLAB_SOAK:-}" ] || selection=1000000
failed=0

seq 1 20000 | sed 's/.*/line & of many, with a tail/' >"$folder/lines"
printf '%s\n' 'create table t(a, b);' \
	'with recursive n(i) as (select 1 union all select i + 1 from n where i < 5000)' \
	"insert into t select i, printf('%.*c', i % 300, 'x') from n;" \
	'select count(*), sum(length(b)) from t group by a % 7;' >"$folder/statements"

# sweep NAME COMMAND...
sweep() {
	local name=$1 calls step k status runs=0 refused=0
	shift
	if ! "$@" >"$folder/expected" 2>"$folder/errors"; then
		echo "skipped $name: not on this machine"
		return 0
	fi
	LD_PRELOAD=$CPUSLAB_FAULTY CPUSLAB_FAULTS_LOG=$folder/log "$@" >"$folder/output" 2>"$folder/errors" || true
	cmp -s "$folder/output" "$folder/expected" || {
		echo "$name: another output though nothing failed"
		failed=1
		return 0
	}
	read -r calls _ <"$folder/log"
	step=$((calls / selection + 1))
	for ((k = 1; k <= calls; k += step)); do
		status=0
		LD_PRELOAD=$CPUSLAB_FAULTY CPUSLAB_FAULTS=$k,1 \
			timeout 60 "$@" >"$folder/output" 2>"$folder/errors" || status=$?
		runs=$((runs + 1))
		if [ $status -eq 0 ] && cmp -s "$folder/output" "$folder/expected"; then
			continue
		fi
		refused=$((refused + 1))
		# 124: it hung; from 129 a signal, of which 134 is abort().
		if [ $status -eq 0 ] || [ $status -eq 124 ] || { [ $status -gt 128 ] && [ $status -ne 134 ]; } ||
			grep -q '^cpuslab' "$folder/errors"; then
			echo "$name, call $k of $calls: exit status $status"
			tail -n 5 "$folder/errors"
			failed=1
		fi
	done
	echo "$name: $calls calls, $runs of them failed one at a time; it ended early $refused times"
}

sweep sort sort -R --random-source="$folder/lines" --parallel=2 "$folder/lines"
sweep sqlite3 sqlite3 -init "$folder/statements" :memory: .quit
sweep python3 python3 -c 'import json; print(len(json.dumps([{"n": n, "s": "x" * n} for n in range(900)])))'
exit $failed
