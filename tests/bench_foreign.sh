#!/bin/sh
# bench foreign: each script says what it needs and what to run; one whose program prints something else under an
# allocator gives no figure of it; one whose program is missing is named.
set -eu
command=$CPUSLAB_BUILD/cpuslab
[ -x "$command" ] && command -v dash >/dev/null || { echo "the command was not built, or there is no dash"; exit 77; }
# Sanitizers must come first in a process, and so must a preloaded allocator.
[ -z "${CPUSLAB_SANITIZE:-}" ] || { echo "allocators are not preloaded into sanitized programs"; exit 77; }
scripts=$(dirname "$0")/../bench/foreign
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

count=0
for script in "$scripts"/*.sh; do
	[ "$(grep -c '^# needs: [^ ]*$' "$script")" -eq 1 ] && [ "$(grep -c '^# run: ' "$script")" -eq 1 ] ||
		{ echo "$script lacks what to run"; exit 1; }
	count=$((count + 1))
done
[ "$count" -ge 25 ]

# A library under which the shell's output has a line more.
cat >"$work/loud.c" <<'END'
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <unistd.h>
void *__libc_malloc(size_t);
void *malloc(size_t size) { return __libc_malloc(size); }
static __attribute__((constructor)) void speak(void)
{
	if (!strcmp(program_invocation_short_name, "dash"))
		(void)!write(1, "loud\n", 5);
}
END
cc -shared -fPIC -o "$work/loud.so" "$work/loud.c"
"$command" bench foreign --only dash --peers "cpuslab,glibc,loud=$work/loud.so" --reps 2 --format csv \
	>"$work/figures" 2>"$work/said" || { cat "$work/said"; exit 1; }
grep -q '^foreign,foreign programs,dash,cpu.*,cpuslab,' "$work/figures"
grep -q '^foreign,foreign programs,dash,peak resident.*,glibc,' "$work/figures"
! grep -q 'dash.*,loud,' "$work/figures"
grep -q 'dash under loud printed something else' "$work/said"

mkdir "$work/bin"
for program in sh mkdir rm cat; do
	ln -s "$(command -v $program)" "$work/bin/$program"
done
PATH=$work/bin "$command" bench foreign --only lua --peers glibc --reps 2 >"$work/table"
grep -q 'program lua.*not found, skipped' "$work/table"
