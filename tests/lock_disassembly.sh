#!/bin/sh
# The inline paths as gcc and clang compile them (x86-64): one locked instruction each, whose sign flag is the
# answer; no compare-exchange loop, and no second look at the byte, which may be another's by then.
set -eu
[ "$(uname -m)" = x86_64 ] || { echo "skipped: not x86-64"; exit 77; }
command -v objdump >/dev/null || { echo "skipped: no objdump"; exit 77; }
root=$(cd "$(dirname "$0")/.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

cat >"$folder/paths.c" <<'END'
#include <cpuslab/lock.h>
bool clear_bit_unlock(uint8_t *byte) { return cpuslab_clear_bit_unlock_is_negative_byte(0, byte); }
bool xor_unlock(uint8_t *byte) { return cpuslab_xor_unlock_is_negative_byte(0x05, byte); }
bool xor_unlock_any(uint8_t mask, uint8_t *byte) { return cpuslab_xor_unlock_is_negative_byte(mask, byte); }
void page_unlock(struct cpuslab_pagelock *lock) { cpuslab_pagelock_unlock(lock); }
void page_unlock_flip(struct cpuslab_pagelock *lock) { cpuslab_pagelock_unlock_flip(lock, 0x04); }
void page_set_flags(struct cpuslab_pagelock *lock) { cpuslab_pagelock_set_flags(lock, 0x04); }
void page_clear_flags(struct cpuslab_pagelock *lock) { cpuslab_pagelock_clear_flags(lock, 0x04); }
void page_flip_flags(struct cpuslab_pagelock *lock) { cpuslab_pagelock_flip_flags(lock, 0x04); }
void spin_lock(struct cpuslab_spinlock *lock) { cpuslab_spin_lock(lock); }
void spin_unlock(struct cpuslab_spinlock *lock) { cpuslab_spin_unlock(lock); }
END

compilers=0
for compiler in gcc "$("$root/scripts/clang" clang)"; do
	command -v "$compiler" >/dev/null || continue
	compilers=$((compilers + 1))
	for level in -O1 -O2 -O3 -Os; do
		"$compiler" $level -std=gnu17 -fcf-protection=none -I"$root/include" -c -o "$folder/paths.o" "$folder/paths.c"
		objdump -d --no-show-raw-insn "$folder/paths.o" >"$folder/paths.s"
		# function expected-locked-instruction whether-the-sign-flag-must-be-used loads-of-the-lock
		while read -r function pattern sign loads; do
			# Without the padding, which may have a memory operand.
			body=$(sed -n "/<$function>:/,/^\$/p" "$folder/paths.s" | grep -v -w -e nop -e nopw -e nopl -e 'xchg *%ax,%ax')
			locked=$(printf '%s\n' "$body" | grep -c -E '\b(lock|xchg)\b' || true)
			expected=$([ "$pattern" = none ] && echo 0 || echo 1)
			fail=
			[ "$locked" -eq "$expected" ] || fail="$locked locked instructions instead of $expected"
			[ "$pattern" = none ] || printf '%s\n' "$body" | grep -q -E "$(echo "$pattern" | tr _ ' ')" ||
				fail="no $pattern"
			[ "$sign" = - ] || printf '%s\n' "$body" | grep -q -E '\b(js|jns|sets|setns)\b' ||
				fail="the sign flag is not used"
			! printf '%s\n' "$body" | grep -q cmpxchg || fail="a compare-exchange"
			got=$(printf '%s\n' "$body" | grep -c -E '(mov|cmp|test)[a-z]* .*\(%r(di|si|ax|bx|cx|dx)\)' || true)
			[ "$got" -eq "$loads" ] || fail="$got other accesses to the lock instead of $loads"
			if [ -n "$fail" ]; then
				echo "$compiler $level $function: $fail"
				printf '%s\n' "$body"
				exit 1
			fi
		done <<-'END'
			clear_bit_unlock lock_and sign 0
			xor_unlock lock_xor sign 0
			xor_unlock_any lock_xor sign 0
			page_unlock lock_and sign 0
			page_unlock_flip lock_xor sign 0
			page_set_flags lock_or sign 0
			page_clear_flags lock_and sign 0
			page_flip_flags lock_xor sign 0
			spin_lock xchg - 0
			spin_unlock none - 2
		END
	done
	echo "$compiler: as it should be"
done
[ $compilers -gt 0 ] || { echo "skipped: no compiler"; exit 77; }
