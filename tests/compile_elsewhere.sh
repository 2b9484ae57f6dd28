#!/bin/sh
# SPDX-License-Identifier: MIT
# What this machine does not compile: the command without ncursesw, libpng, libdw and libiberty, the library's portable code, and all of it for
# another architecture, of which src/arch has no asm.  The same warnings are errors as in the build that is there.
set -eu
# The words of the build's own commands go to gcc.
[ "${CPUSLAB_COMPILER:-GNU}" = GNU ] || {
	echo "skipped: shown by the build with gcc"
	exit 77
}

here=$(cd "$(dirname "$0")" && pwd)

exec python3 - "${CPUSLAB_BUILD:-$here/../build}/compile_commands.json" "$(cd "$here/.." && pwd)" <<'PYTHON'
import json, os, re, shlex, shutil, subprocess, sys

database, source = sys.argv[1:]
commands = {}
for entry in json.load(open(database)):
    name = os.path.relpath(os.path.realpath(entry['file']), source)
    if name.endswith('.c'):
        commands.setdefault(name, shlex.split(entry['command']))


def mentions(name, pattern):
    return re.search(pattern, open(os.path.join(source, name)).read()) is not None


def compiles(kind, names, compiler, *more):
    """How many of these do not compile, with no library that may be missing."""
    failures = 0
    for name in sorted(names):
        words = [word for word in commands[name] if word.startswith(('-I', '-D', '-isystem', '-W', '-std')) and
                 not word.startswith('-DCPUSLAB_HAS_')]
        # To the end of a file, where the compiler knows what nobody uses; how long a text may be it guesses without -O2.
        run = subprocess.run([compiler, *words, '-Wno-format-truncation', *more, '-S', '-o', os.devnull,
                              os.path.join(source, name)], capture_output=True, text=True)
        if run.returncode:
            print(f'{name} does not compile {kind}:\n{run.stderr}', file=sys.stderr)
            failures += 1
    print(f'{len(names)} files compiled {kind}')
    return failures


library = [name for name in commands if name.startswith('src/')]
optional = [name for name in commands if mentions(name, r'\bCPUSLAB_HAS_')]
assert len(library) > 50 and len(optional) > 1, (library, optional)
failures = compiles('without the libraries that may be missing', optional, 'gcc')
failures += compiles('by the portable code alone', library, 'gcc', '-DCPUSLAB_GENERIC')
cross = 'aarch64-linux-gnu-gcc'
if shutil.which(cross):
    special = [name for name in commands if name.startswith(('tools/', 'bench/')) or mentions(name, r'__x86_64__|\bARCH_HAS_')]
    failures += compiles('for another architecture', {*library, *special}, cross)
sys.exit(failures > 0)
PYTHON
