#!/bin/bash
# git: a repository made here (commits, branches, merges, tags), repacked by threads, collected, checked, cloned.
# Dates and names are fixed, so both runs must come to the same object names.
# shellcheck source=preload.sh
. "$(dirname "$0")/preload.sh"
needs git
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_PAGER=cat
export GIT_AUTHOR_NAME=author GIT_AUTHOR_EMAIL=author@example.org GIT_COMMITTER_NAME=author
export GIT_COMMITTER_EMAIL=author@example.org
export GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z'

cat >"$scratch/history.sh" <<'HISTORY'
set -eu
git init -q -b main repository
cd repository
git config gc.auto 0
git config core.fsync none
for commit in $(seq 40); do
	for file in $(seq 12); do
		mkdir -p "folder$((file % 4))"
		# The same text with a few changed lines, so that packing finds deltas.
		seq "$((commit * file % 50))" "$((2000 + commit))" >"folder$((file % 4))/file$file"
	done
	git add .
	git commit -q -m "commit $commit"
done
git tag -a -m 'halfway' half HEAD~20
git checkout -q -b side HEAD~10
echo side >side.txt
git add side.txt
git commit -q -m 'side'
git checkout -q main
git merge -q --no-edit -m 'merge side' side
HISTORY

cat >"$scratch/pack.sh" <<'PACK'
set -eu
cd repository
git -c pack.threads=4 repack -adfq --window=20 --depth=20
git -c pack.threads=2 gc -q --aggressive --prune=now
git fsck --full --strict
git verify-pack .git/objects/pack/*.idx
git cat-file --batch-all-objects --batch-check
PACK

cat >"$scratch/read.sh" <<'READ'
set -eu
cd repository
git log --stat --graph --all
git log -p --follow -M -C -- folder1/file1 | tail -n 2000
git blame folder2/file2 | tail -n 50
git grep -n -c 2017
git grep --threads=4 -l -E '19[0-9]{2}'
git diff --patience half HEAD | tail -n 200
git archive HEAD | sha1sum
git rev-list --all --objects --count
cd ..
git clone -q --no-local repository clone
git -C clone fsck --full
git -C clone rev-parse HEAD
READ

prove_bound git init -q "$scratch/proof"
in_both history bash "$scratch/history.sh"
in_both pack bash "$scratch/pack.sh"
in_both read bash "$scratch/read.sh"
[ -s "$scratch/preload.read.out" ] || fail "git wrote nothing"
