# shellcheck shell=sh
# Sourced by the tests that run spin on tests/models: `check` searches a model exhaustively.
cd "$(dirname "$0")/models" || exit 1
command -v spin >/dev/null || { echo "skipped: no spin (Debian package spin)"; exit 77; }
# The same sources in every variant: once is enough.
case ${CPUSLAB_BUILD_TYPE:-Release}${CPUSLAB_COMPILER:-GNU} in
ReleaseGNU) ;;
*) echo "skipped: shown by the release build with gcc"; exit 77 ;;
esac
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# Most of a short search is the compiler: without optimisation, by clang where it is, which takes a third of gcc's time, and
# with tables that are no larger than such a search needs.  What takes minutes is optimised, and its states are compressed.
compile="$(../../scripts/clang clang 2>/dev/null || command -v "${CC:-cc}") -O0" search='-m500000 -w22'
[ "${CPUSLAB_SOAK:-0}" = 0 ] || compile="${CC:-cc} -O2 -DCOLLAPSE" search=-m2000000

# check MODEL expected-errors DEFINITION...
check() {
	model=$1 expected=$2
	shift 2
	cp "$model.pml" "$folder"
	(
		cd "$folder" || exit 1
		spin -a "$@" "$model.pml" >spin.log || { cat spin.log; exit 1; }
		# shellcheck disable=SC2086
		$compile -w -DSAFETY -o pan pan.c
		# shellcheck disable=SC2086
		./pan $search >pan.log
	)
	errors=$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' "$folder/pan.log")
	states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' "$folder/pan.log")
	echo "$model $*: $states states, $errors errors"
	if grep -q -e 'max search depth too small' -e 'out of memory' "$folder/pan.log"; then
		echo "the search was not exhaustive"
		exit 1
	fi
	if [ "$errors" != "$expected" ]; then
		cat "$folder/pan.log"
		[ "$expected" != 0 ] || (cd "$folder" && spin -t -p -g "$@" "$model.pml" | tail -n 60)
		exit 1
	fi
}

# check_plants MODEL "PLANT..." DEFINITION...: a rule that is left out must be found.
check_plants() {
	model=$1 plants=$2
	shift 2
	for plant in $plants; do
		check "$model" 1 "-DPLANT_$plant" "$@"
	done
}
