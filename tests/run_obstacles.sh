#!/bin/bash
# SPDX-License-Identifier: MIT
# `cpuslab run` says in one line when a program cannot take the library, and why, and runs it all the same: static programs,
# set-user-id and set-group-id ones, those with file capabilities, of another word size or C library, and scripts that one of
# them interprets.  Of any other program it says nothing, and the library is in it.
set -eu
[ "$(uname -m)" = x86_64 ] || { echo "skipped: not x86-64"; exit 77; }
# shellcheck source=shared/sight.bash
. "$(dirname "$0")/shared/sight.bash"
chmod 755 "$work"
cd "$work"
cat >program.c <<'END'
#include <stdio.h>
#include <string.h>
int main(int argc, char **argv)
{
	char line[4096];
	int found = 0;
	FILE *maps = fopen("/proc/self/maps", "r");
	while (maps && fgets(line, sizeof line, maps))
		found |= strstr(line, "libcpuslab") != NULL;
	puts(found ? "with the library" : "without the library");
	return argc > 1 && strcmp(argv[argc - 1], "7") == 0 ? 7 : 0;
}
END
gcc -O1 program.c -o dynamic
gcc -O1 -static program.c -o static
gcc -O1 -static-pie program.c -o static-pie
gcc -O1 program.c -o other-libc -Wl,--dynamic-linker="$work/ld-musl-x86_64.so.1"
ln -s "$(readelf -lW dynamic | sed -n 's/.*interpreter: \(.*\)\]/\1/p')" ld-musl-x86_64.so.1
cat >narrow.s <<'END'
	.globl _start
_start:	movl $4, %eax
	movl $1, %ebx
	movl $text, %ecx
	movl $20, %edx
	int $0x80
	movl $1, %eax
	movl $7, %ebx
	int $0x80
text:	.ascii "without the library\n"
END
as --32 narrow.s -o narrow.o
ld -m elf_i386 narrow.o -o narrow
printf '#!%s\n' "$work/static" >script
printf '#! %s -x\n' "$work/script" >script-of-script
printf '#!%s\n' "$work/dynamic" >script-of-dynamic
printf 'exec %s "$@"\n' "$work/dynamic" >no-line
chmod 755 script script-of-script script-of-dynamic no-line

# expect WITH|WITHOUT REASON RUN...: the last words are the command that runs the program, whose exit status must be 7.
expect() {
	local how=$1 reason=$2 status=0
	shift 2
	"$@" 7 >said 2>error || status=$?
	[ $status = 7 ] || fail "$*: status $status: $(cat error)"
	[ "$(cat said)" = "$how the library" ] || fail "$*: $(cat said), but expected $how"
	if [ -z "$reason" ]; then
		[ ! -s error ] || fail "$*: $(cat error)"
	else
		[ "$(wc -l <error)" = 1 ] && grep -q "^cpuslab run: .*: nothing was preloaded, because .*$reason" error ||
			fail "$*: '$(cat error)', but expected '$reason'"
	fi
}

run=("$cpuslab" run --)
expect with '' "${run[@]}" ./dynamic
expect with '' "${run[@]}" ./script-of-dynamic
expect with '' "${run[@]}" ./no-line
expect with '' "${run[@]}" ./ld-musl-x86_64.so.1 ./dynamic
expect without 'statically linked' "${run[@]}" ./static
expect without 'statically linked' "${run[@]}" ./static-pie
expect without 'statically linked' "${run[@]}" ./script
expect without 'statically linked' "${run[@]}" ./script-of-script
expect without 'another C library' "${run[@]}" ./other-libc
if ./narrow >/dev/null || [ $? -eq 7 ]; then
	expect without 'another word size' "${run[@]}" ./narrow
else
	echo "skipped: this kernel runs no 32-bit programs"
fi
# Names are looked up as execvp does, past what is no program.
mkdir first second third
: >first/static
mkdir second/static
cp static third/static
PATH=first:second:third:$PATH expect without 'statically linked' "${run[@]}" static
(cd third && PATH=:$PATH expect without 'statically linked' "${run[@]}" static)
PATH=$work:$PATH expect with '' "${run[@]}" dynamic

if [ "$(id -u)" != 0 ] || ! command -v setpriv >/dev/null; then
	echo "skipped: set-user-id programs, which only root can make"
	exit 0
fi
cp dynamic set-user && chown 65533 set-user && chmod 4755 set-user
cp dynamic set-group && chgrp 65533 set-group && chmod 2755 set-group
cp dynamic set-root && chmod 4755 set-root
# The library and the command where anybody can read them.
cp "$cpuslab" cpuslab
cp -L "$build/libcpuslab.so" libcpuslab.so.0
nobody=(setpriv --reuid=65534 --regid=65534 --clear-groups "$work/cpuslab" run --)
expect with '' "${nobody[@]}" ./dynamic
expect without 'set-user-id' "${nobody[@]}" ./set-user
expect without 'set-group-id' "${nobody[@]}" ./set-group
expect without 'set-user-id' "${nobody[@]}" ./set-root
expect with '' "${run[@]}" ./set-root
expect with '' setpriv --no-new-privs "${nobody[@]}" ./set-user
cp dynamic capable
if command -v setcap >/dev/null && setcap cap_net_raw+ep capable 2>/dev/null; then
	expect without 'capabilities' "${nobody[@]}" ./capable
	expect with '' "${run[@]}" ./capable
else
	echo "skipped: file capabilities, which cannot be set here"
fi
