#!/bin/bash
# `cpuslab decode` names functions, files and lines in debug, guard and hardened reports: inlined functions, C++ and
# both manglings of Rust, position-independent programs and others, libraries, and stripped files whose debug
# information lies elsewhere.  `cpuslab profile` shows the same names.  Reports it cannot decode stay as they are.
set -u
# shellcheck source-path=SCRIPTDIR source=shared/sight.bash
. "$(dirname "$0")/shared/sight.bash"
compiler=$(command -v gcc || command -v clang) || { echo "skipped: no compiler on this machine" && exit 77; }
for tool in objcopy strip; do
	command -v $tool >/dev/null || { echo "skipped: no $tool on this machine" && exit 77; }
done
cd "$work" || exit 2
"$cpuslab" decode </dev/null 2>lacks || fail "decode: $(cat lacks)"
grep -q 'built without libiberty' lacks && echo "skipped: a command without libiberty" && exit 77
grep -q 'built without libdw' lacks && echo "skipped: a command without libdw" && exit 77

# Names as compilers of other languages make them.
cat >outer.h <<'SOURCE'
void *cxx(int size) __asm__("_ZN5Store8rememberEi");
void *legacy(int size) __asm__("_ZN5crate4keep17h0123456789abcdefE");
void *modern(int size) __asm__("_RNvNtCs1234_7mycrate5cache4grow");
void fail_twice(void *object) __asm__("_Z4failI3ArgEvPT_");
SOURCE
cat >library.c <<'SOURCE'
#include "outer.h"
#include <stdlib.h>

static inline __attribute__((always_inline)) void release(void *object)
{
	free(object);
	free(object);
}

__attribute__((noinline)) void fail_twice(void *object)
{
	release(object);
	__asm__("" ::: "memory");
}
SOURCE
cat >program.c <<'SOURCE'
#include "outer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *last;

static inline __attribute__((always_inline)) void *allocate(int size)
{
	return malloc((size_t)size);
}

__attribute__((noinline)) void *cxx(int size)
{
	void *object = allocate(size);
	return last = object;
}

__attribute__((noinline)) void *legacy(int size)
{
	void *object = cxx(size);
	return last = object;
}

__attribute__((noinline)) void *modern(int size)
{
	void *object = legacy(size);
	return last = object;
}

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "leak") == 0) {
		puts("up");
		fflush(stdout);
		for (;;) {
			modern(960);
			usleep(10);
		}
	}
	void *object = modern(100);

	if (argc > 1 && strcmp(argv[1], "guard") == 0)
		for (int i = 0; i < 100000; i++) {
			free(object);
			object = modern(4000);
			last[4096] = 1;
		}
	fail_twice(object);
	return 0;
}
SOURCE
# line TEXT FILE: its number.
line() {
	grep -nF -- "$1" "$2" | tail -1 | cut -d: -f1
}
allocates=$(line 'return malloc' program.c) calls=$(line 'void *object = allocate' program.c) legacy=$(line 'object = cxx(' program.c)
modern=$(line 'object = legacy(' program.c) frees=$(line 'free(object);' library.c) releases=$(line 'release(object);' library.c)
main=$(line 'object = modern(100)' program.c) fails=$(line 'fail_twice(object);' program.c)

# report OPTIONS PROGRAM ARGS...: what it writes to standard error as it ends.
report() {
	local options=$1
	shift
	{ env CPUSLAB_OPTIONS="$options" LD_PRELOAD="$build/libcpuslab.so" "$@" >/dev/null 2>report; } 2>/dev/null
	grep -q '+0x' report || fail "no stack: $(cat report)"
}
# has FILE LINE...: these lines in a row, each a basic regular expression; FILE's folder comes before each file name.
has() {
	local file=$1 wanted
	shift
	wanted=$(printf '%s\n' "$@")
	awk -v "wanted=$wanted" 'BEGIN { count = split(wanted, pattern, "\n") }
		{ text[NR] = $0 }
		END { for (i = 1; i <= NR; i++) { for (j = 1; j <= count && text[i + j - 1] ~ pattern[j]; j++); if (j > count) exit 0 } exit 1 }' \
		"$file" || fail "not in a row:
$wanted
but: $(cat "$file")"
}
freed=("^    release at .*/?library[.]c:$frees [(]inlined[)]$" "^    void fail<Arg>[(]Arg[*][)] at .*/?library[.]c:$releases [(]")
ended=("^    main at .*/?program[.]c:$fails [(]")
allocated=("^    allocate at .*/?program[.]c:$allocates [(]inlined[)]$" "^    Store::remember[(]int[)] at .*/?program[.]c:$calls [(]"
	"^    crate::keep at .*/?program[.]c:$legacy [(]" "^    mycrate::cache::grow at .*/?program[.]c:$modern [(]" "^    main at .*/?program[.]c:$main [(]")

build() {
	"$compiler" -g -O1 -fno-builtin -fno-optimize-sibling-calls "$@" || fail "not compiled: $*"
}
# decoded PROGRAM ARGS...: in both modes whose reports have stacks, with such arguments for decode.
decoded() {
	local program=$1
	shift
	report hardened:1 "$program"
	has report '^cpuslab: malloc-[0-9]*: 0x[0-9a-f]*: free of '
	"$cpuslab" decode "$@" <report >hardened 2>error || fail "decode: $(cat error)"
	has hardened "^$(head -1 report | sed 's/[][().*]/[&]/g')$" "${freed[@]}" "${ended[@]}"
	CPUSLAB_DEBUG=FZPU report "" "$program"
	"$cpuslab" decode "$@" report >debug 2>error || fail "decode: $(cat error)"
	has debug "^Allocated in allocate at .*/?program[.]c:$allocates [(].*[+]0x[0-9a-f]*[)] age=" "${allocated[@]}"
	has debug '^Call stack' "${freed[@]}" "${ended[@]}"
	# All else is as it was.
	diff <(grep -v '+0x' report) <(grep -v ' at \|+0x' debug) >differences || fail "$(cat differences)"
	! grep -q '_ZN5\|_RNv\|_Z4fail' debug hardened || fail "mangled: $(cat hardened debug)"
}

build -o whole program.c library.c
decoded ./whole
build -no-pie -o fixed program.c library.c
decoded ./fixed
build -shared -fPIC -o libfail.so library.c
build -o linked program.c -L. -lfail -Wl,-rpath,"$work"
decoded ./linked
# clang writes no table of which unit an address is in, and rustc has functions inside their namespaces.
clang=$(command -v clang-16 || command -v clang)
if [ -n "$clang" ]; then
	gcc=$compiler compiler=$clang
	build -o clanged program.c library.c
	compiler=$gcc
	decoded ./clanged
else
	echo "there is no clang: its debug information was not tried"
fi
if command -v rustc >/dev/null; then
	cat >oxide.rs <<'SOURCE'
extern "C" {
    fn malloc(bytes: usize) -> *mut u8;
    fn free(object: *mut u8);
}
mod cache {
    pub mod inner {
        #[inline(always)]
        pub fn release(object: *mut u8) {
            unsafe { super::super::free(object) }
        }
    }
    #[inline(never)]
    pub fn drop_twice(object: *mut u8) -> usize {
        inner::release(object);
        inner::release(object);
        object as usize
    }
}
fn main() {
    println!("{}", cache::drop_twice(unsafe { malloc(100) }));
}
SOURCE
	rustc -g -O oxide.rs 2>error || fail "not compiled: $(cat error)"
	report hardened:1 ./oxide
	"$cpuslab" decode report >hardened 2>error || fail "$(cat error)"
	has hardened "^    oxide::cache::inner::release at .*/?oxide[.]rs:9 [(]inlined[)]$" "^    oxide::cache::drop_twice at .*/?oxide[.]rs:15 [(]oxide[+]"
else
	echo "there is no rustc: its debug information was not tried"
fi
# Found by the file or its folder alone.
mkdir away
mv whole away
(cd / && "$cpuslab" decode --path="$work/away" "$work/report") >/dev/null 2>error || fail "decode: $(cat error)"
report hardened:1 away/whole
(cd / && "$cpuslab" decode "$work/report") >plain 2>error
diff <(grep '(whole+' report) <(grep '(whole+' plain) && grep -qx 'cpuslab decode: whole: not found; --path says where it is' error ||
	fail "not found, and not as it was: $(cat plain error)"
(cd / && "$cpuslab" decode -p "$work/away/whole" "$work/report") >hardened 2>error || fail "$(cat error)"
has hardened "${freed[@]}" "${ended[@]}"
# Stripped: without debug information elsewhere as much as the report says, then by its link.
cp away/whole stripped
objcopy --only-keep-debug stripped kept.info
strip stripped
report hardened:1 ./stripped
"$cpuslab" decode report >plain 2>error
diff <(grep '(stripped+' report) <(grep '(stripped+' plain) || fail "not as it was"
objcopy --add-gnu-debuglink=kept.info stripped
"$cpuslab" decode report >hardened 2>error || fail "$(cat error)"
has hardened "${freed[@]}" "${ended[@]}"
# Exported, a function has a name in the report; where the file has another one there, it is of another build.
build -rdynamic -o exported program.c library.c
report hardened:1 ./exported
grep -q '_Z4failI3ArgEvPT_+0x' report || fail "no name: $(cat report)"
"$cpuslab" decode report >hardened 2>error || fail "$(cat error)"
has hardened "${freed[@]}"
build -rdynamic -o exported -DOTHER -include stdio.h -x c - <<<'int main(void) { return puts("other"); }'
"$cpuslab" decode report >plain 2>error
has plain '^    void fail<Arg>[(]Arg[*][)][+]0x[0-9a-f]*/0x[0-9a-f]* [(]exported[+]0x[0-9a-f]*[)]$'

# A guarded object's report.
cp away/whole whole
report guard:1,guard_cost:0,guard_second:0 ./whole guard
grep -q 'Allocated' report || fail "no guard's report: $(cat report)"
"$cpuslab" decode report >guard 2>error || fail "$(cat error)"
has guard "${allocated[@]:1:3}"

# Not only reports come in, and what is no report stays as it is.
head -c 100000 /dev/urandom >noise
printf '(x+0x)\n(+0x1)\n a+0x1/0x2 (\n(()+0x5)\n/0x1 (libc.so.6+0xffffffffffffffff)\n(libc.so.6+0x0)\nno newline (libc.so.6+0x7fffffff)' >odd
for file in noise odd; do
	"$cpuslab" decode $file >plain 2>error || fail "$file: $(cat error)"
	cmp -s $file plain || fail "$file changed"
done
"$cpuslab" decode missing 2>error && fail "decodes what is not there"
grep -qx 'cpuslab decode: missing: No such file or directory' error || fail "$(cat error)"

# ---- profiles ------------------------------------------------------------------------------------------------------

begin ./whole leak
"$cpuslab" profile --seconds=1 --interval=8K --keep "$pid" >top || fail "no profile"
grep -q "  100[.]0%  allocate at program[.]c:$allocates\$\| allocate at program[.]c:$allocates\$" top || fail "$(cat top)"
for text in "Store::remember(int) at program.c:$calls" "crate::keep at program.c:$legacy" "mycrate::cache::grow at program.c:$modern"; do
	grep -qF "  $text" top || fail "no $text: $(cat top)"
done
"$cpuslab" profile --format=folded "$pid" >folded || fail "no profile"
grep -qF ";mycrate::cache::grow at program.c:$modern;crate::keep at program.c:$legacy;Store::remember(int) at program.c:$calls;allocate at program.c:$allocates " folded ||
	fail "$(cat folded)"
kill -KILL "$pid"

# A file that is truncated while it is read costs its lines, not the command.
report hardened:1 ./whole
SHRINKS=whole LD_PRELOAD="$build/tests/libfile_shrinks.so" "$cpuslab" decode report >hardened 2>error || fail "a file that shrinks: $? $(cat error)"
grep -qx 'whole shrinks' error || fail "it did not shrink: $(cat error)"
has hardened '^    void fail<Arg>[(]Arg[*][)] [(]whole[+]0x[0-9a-f]*[)]$'
exit 0
