#!/bin/bash
# sqlite3, python3 and sort with one in 1000 allocations between guard pages: they do what they do without.  Last,
# that some were.
# shellcheck source=preload.sh
. "$(dirname "$0")/preload.sh"
needs sqlite3 python3 sort
export CPUSLAB_OPTIONS="${CPUSLAB_OPTIONS:+$CPUSLAB_OPTIONS,}guard:1000,guard_second:0,guard_cost:0"
export SQLITE_HISTORY=/dev/null PYTHONHASHSEED=0 PYTHONDONTWRITEBYTECODE=1 PYTHONMALLOC=malloc

cat >"$scratch/work.py" <<'PYTHON'
import hashlib, json, subprocess, threading, zlib

text = json.dumps({str(i): list(range(i % 50)) for i in range(3000)})
threads = [threading.Thread(target=lambda: [json.loads(text) for _ in range(3)]) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(subprocess.run(["sort"], input=b"b\na\n", capture_output=True).stdout)
print(hashlib.sha256(zlib.compress(text.encode())).hexdigest())
PYTHON

write_query
in_both sqlite3 sqlite3 -batch -bail work.db ".read $scratch/query.sql"
in_both python3 python3 "$scratch/work.py"

CPUSLAB_OPTIONS="$CPUSLAB_OPTIONS,stats_at_exit:true" preloaded python3 "$scratch/work.py" >/dev/null 2>"$scratch/statistics"
grep -qE '^guarded: [1-9][0-9]* picked' "$scratch/statistics" || fail "none was guarded: $(tail -n 1 "$scratch/statistics")"
