#!/bin/sh
# SPDX-License-Identifier: MIT
# Programs under qemu-user, which has no restartable sequences, and before 8.0 writes down each page that is mapped: what the
# heap would reserve takes 7 GB there.  So nothing is reserved, and threads have slots.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
build=${CPUSLAB_BUILD:-$here/../build}
emulator=qemu-$(uname -m)
command -v "$emulator" >/dev/null || {
	echo "skipped: no $emulator"
	exit 77
}

exec python3 - "$emulator" "$build/libcpuslab.so" "$(uname -m)" <<'PYTHON'
import resource, shutil, subprocess, sys

emulator, library, machine = sys.argv[1:]
FORKS = '''
$| = 1;
$h{$_} = "$_" x 9 for 1..20000;
if (!fork) { delete @h{1..10000}; print scalar(keys %h), " "; exit }
wait;
print scalar(keys %h);
'''
THREADS = '''
import threading
def work():
    for _ in range(50):
        several = [bytes(n) for n in range(300)]
threads = [threading.Thread(target=work) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print("done")
'''
programs = [(['perl', '-e', FORKS], '10000 20000'), (['python3', '-c', THREADS], 'done')]
MOST = 256 << 10  # kB
failures = ran = 0
for options in ('', 'hardened:true', 'reserve:16G'):
    for (name, *arguments), expected in programs:
        path = shutil.which(name)
        if not path or open(path, 'rb').read(4) != b'\x7fELF':
            continue
        run = subprocess.run([emulator, '-E', 'LD_PRELOAD=' + library, '-E', 'CPUSLAB_OPTIONS=' + options, path,
                              *arguments], capture_output=True, text=True)
        most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        ran += 1
        if run.returncode or run.stdout.strip() != expected or run.stderr or most > MOST:
            print(f'{name}, {options or "no options"}: status {run.returncode}, at most {most} kB so far, '
                  f'{run.stdout[:200]!r} {run.stderr[:1000]!r}')
            failures += 1
print(f'{ran} runs on {machine}, {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss} kB at most')
sys.exit(failures > 0 or ran == 0)
PYTHON
