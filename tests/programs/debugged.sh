#!/bin/bash
# sqlite3, python3 and git with every check of CPUSLAB_DEBUG on every class of malloc: they do what they do
# without, and nothing is reported.  Last, that the checks were there: a traced class prints its calls.
# shellcheck source=preload.sh
. "$(dirname "$0")/preload.sh"
needs sqlite3 python3 git
export CPUSLAB_DEBUG=FZPU SQLITE_HISTORY=/dev/null PYTHONHASHSEED=0 PYTHONDONTWRITEBYTECODE=1
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_PAGER=cat
export GIT_AUTHOR_NAME=author GIT_AUTHOR_EMAIL=author@example.org GIT_COMMITTER_NAME=author
export GIT_COMMITTER_EMAIL=author@example.org
export GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z'

cat >"$scratch/work.py" <<'PYTHON'
import collections, hashlib, json, re, threading, zlib

words = collections.Counter(re.findall(r"\w+", json.__doc__ * 20))
text = json.dumps({str(i): list(range(i % 50)) for i in range(3000)})
threads = [threading.Thread(target=lambda: [json.loads(text) for _ in range(3)]) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(words.most_common(3), hashlib.sha256(zlib.compress(text.encode())).hexdigest())
PYTHON

cat >"$scratch/history.sh" <<'HISTORY'
set -eu
git init -q -b main repository
cd repository
git config core.fsync none
for commit in 1 2 3 4; do
	seq "$commit" "$((1000 + commit))" >file
	git add .
	git commit -q -m "commit $commit"
done
git -c pack.threads=2 repack -adfq
git fsck --full
git log --stat
HISTORY

write_query
in_both sqlite3 sqlite3 -batch -bail work.db ".read $scratch/query.sql"
in_both python3 python3 "$scratch/work.py"
in_both git sh "$scratch/history.sh"

CPUSLAB_DEBUG='T,malloc-*' preloaded sqlite3 :memory: 'SELECT 1' >/dev/null 2>"$scratch/trace"
grep -qE '^TRACE malloc-[0-9]+ alloc 0x[0-9a-f]+ size=[0-9]+ inuse=[0-9]+$' "$scratch/trace" ||
	fail "no trace of a debugged class: $(head -n 3 "$scratch/trace")"
