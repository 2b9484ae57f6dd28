#!/bin/bash
# gcc, g++ and clang compile the library's own sources and link them: the object files and the shared library
# must come out equal to the last byte.
# shellcheck source=preload.sh
. "$(dirname "$0")/preload.sh"
source=$(cd "$(dirname "$0")/../.." && pwd)
gcc=${GCC:-gcc}
needs "$gcc"
export SOURCE_DATE_EPOCH=1577836800

cat >"$scratch/gcc.sh" <<'COMPILE'
set -eu
source=$1 gcc=$2 step=$3
files=("$source"/src/*/*.c)
for ((i = 0; i < ${#files[@]}; i += step)); do
	file=${files[i]}
	room=$(basename "$(dirname "$file")")
	object=$room-$(basename "$file" .c).o
	"$gcc" -O2 -g -std=gnu17 -fPIC -fdebug-prefix-map="$PWD"=. -D_GNU_SOURCE -DNDEBUG -DCPUSLAB_VERSION='"0"' \
		-I"$source/include" -I"$source/src" -frandom-seed="$object" -fvisibility=hidden -c -o "$object" "$file"
done
COMPILE
cat >"$scratch/link.sh" <<'LINK'
set -eu
# Of what is there the files that both sides have.
mapfile -t objects <"$3"
"$1" "$2" -o linked.so "${objects[@]}"
# Whole-program optimisation runs several processes and threads of the compiler.
"$1" -flto=2 -fno-fat-lto-objects -O2 -c -x c -o whole-a.lto - <<'C'
int square(int x) { return x * x; }
C
"$1" -flto=2 -O2 -c -x c -o whole-b.lto - <<'C'
int square(int x);
int main(void) { return square(3) != 9; }
C
"$1" -flto=2 -O2 -o whole whole-a.lto whole-b.lto
./whole
rm -f archive.a
ar rcs archive.a "${objects[@]}"
nm --defined-only archive.a | wc -l
objdump -d linked.so | sed 1,3d | cksum
LINK
cat >"$scratch/words.cc" <<'CXX'
#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
#include <regex>
#include <string>
#include <unordered_map>
#include <vector>
int main() {
	std::map<std::string, std::vector<int>> words;
	for (int i = 0; i < 20000; i++)
		words["word " + std::to_string(i * 7919 % 1009)].push_back(i);
	std::unordered_map<std::string, std::shared_ptr<std::string>> shared;
	for (auto &word : words)
		shared[word.first] = std::make_shared<std::string>(std::regex_replace(word.first, std::regex("[0-9]+"), "n"));
	size_t total = 0;
	for (auto &word : shared)
		total += word.second->size();
	std::cout << words.size() << ' ' << total << '\n';
}
CXX
cat >"$scratch/cxx.sh" <<'COMPILE'
set -eu
"$1" -O2 -std=c++17 -frandom-seed=words -c -o "words-$1.oo" "$2"
"$1" -o "words-$1" "words-$1.oo"
"./words-$1"
COMPILE

prove_bound "$gcc" -fsyntax-only -x c /dev/null
# A compiler has one thread: in another mode than the machine's own, and on assertions, some of the files do, which do not
# make a library.
step=1 link=shared
[ -z "${CPUSLAB_OPTIONS:-}" ] && [ "${CPUSLAB_BUILD_TYPE:-Release}" = Release ] || step=4 link=r
in_both gcc bash "$scratch/gcc.sh" "$source" "$gcc" $step
(cd "$scratch/preload" && ls ./*.o) >"$scratch/objects"
in_both link-$link bash "$scratch/link.sh" "$gcc" -$link "$scratch/objects"
same_files linked.so
while read -r object; do
	cmp "$scratch/plain/$object" "$scratch/preload/$object" || exit 1
done <"$scratch/objects" || fail "an object file differs under preload"
echo "  same objects: $(find "$scratch/preload" -name '*.o' | wc -l)"
for compiler in g++ "$("$source/scripts/clang" clang++ 2>/dev/null || echo clang++)"; do
	command -v "$compiler" >/dev/null 2>&1 || {
		echo "  no $compiler here"
		continue
	}
	prove_bound "$compiler" -fsyntax-only -x c++ /dev/null
	in_both "$compiler" bash "$scratch/cxx.sh" "$compiler" "$scratch/words.cc"
	same_files "words-$compiler.oo"
done
