#!/bin/bash
# python3: a part of its own test suite, once without preload to know what passes on this machine, then under
# preload; every test must end as it did before.  PYTHONMALLOC=malloc sends each small object to malloc, which
# python's own arenas would otherwise hide.
# shellcheck source=preload.sh
. "$(dirname "$0")/preload.sh"
python=/usr/bin/python3
needs $python
$python -c 'import test.test_dict' 2>/dev/null || {
	echo "skipped $name: python3 has no test suite here (Debian: libpython3.11-testsuite)"
	exit 77
}
export PYTHONMALLOC=malloc PYTHONDONTWRITEBYTECODE=1
tests="test_dict test_list test_set test_json test_re test_array test_memoryview test_mmap test_ctypes test_gc
	test_weakref test_os test_fork1"
# In auto mode alone: what has one thread and takes long, and what waits more than it works.
auto_alone='test_bytes test_unicode test_struct test_deque test_zlib test_threading test_subprocess test_queue'
# In the long runs: seconds of small objects, as test_json and test_re have them.
[ "${CPUSLAB_SOAK:-0}" = 0 ] || auto_alone="$auto_alone test_pickle test_ast"
# Since 3.13 it is called otherwise.
! $python -c 'import test.test_str' 2>/dev/null || auto_alone=${auto_alone/test_unicode/test_str}
if [ -z "${CPUSLAB_OPTIONS:-}" ]; then
	tests="$tests $auto_alone" auto_alone=''
fi

# results FILE: how each single test of a run ended, one line each, from its JUnit file, but for tests of auto mode alone.
results() {
	# shellcheck disable=SC2086
	$python - "$1" $auto_alone <<'PYTHON'
import sys, xml.etree.ElementTree as tree
for case in tree.parse(sys.argv[1]).iter("testcase"):
    if not any(f"test.{module}." in case.get("name") for module in sys.argv[2:]):
        ended = sorted({part.tag for part in case if part.tag in ("failure", "error", "skipped")})
        print(case.get("name"), " ".join(ended) or case.get("result", "completed"))
PYTHON
}

# failures FILE: what the tests of a run that failed said.
failures() {
	$python - "$1" <<'PYTHON'
import sys, xml.etree.ElementTree as tree
for case in tree.parse(sys.argv[1]).iter("testcase"):
    for part in case:
        if part.tag in ("failure", "error"):
            print(case.get("name"), part.tag, (part.text or "")[-3000:])
PYTHON
}

run_tests() {
	# shellcheck disable=SC2086
	(cd "$scratch/$1" && $2 $python -m test -j3 --junit-xml "$scratch/$1.xml" $tests >"$scratch/$1.log" 2>&1) || {
		grep -vE ' (passed|test_[a-z0-9_]+)$' "$scratch/$1.log" | tail -n 60 >&2
		failures "$scratch/$1.xml" | tail -n 60 >&2
		return 1
	}
}

prove_bound $python -c 'import os; os.system("exit 0")'
preloaded $python - "$library" <<'PYTHON' || fail "the library is not in force inside python"
import ctypes, os, sys
assert sys.argv[1] in open("/proc/self/maps").read(), "the library is not mapped"
library = ctypes.CDLL(None)
if hasattr(library, "cpuslab_vcpu_mode_name"):
    library.cpuslab_vcpu_mode_name.restype = ctypes.c_char_p
    mode = library.cpuslab_vcpu_mode_name().decode()
    assert "vcpu:slot" not in os.environ.get("CPUSLAB_OPTIONS", "") or mode == "slot", mode
    print("  mode:", mode)
PYTHON
# Tests of threads in it go by the clock, and have failed by themselves where much else ran: once more without the library.
[ -e "$scratch/plain.xml" ] || run_tests plain '' || run_tests plain '' || fail "the test suite fails by itself"
run_tests preload preloaded || fail "the test suite fails under preload"
# What is kept has the tests of auto mode.
results "$scratch/plain.xml" | sort >"$scratch/plain.results"
results "$scratch/preload.xml" | sort >"$scratch/preload.results"
compare_output results
echo "  same: $(wc -l <"$scratch/preload.results") tests"
