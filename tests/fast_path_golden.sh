#!/bin/sh
# SPDX-License-Identifier: MIT
# The hit paths of malloc and free, instruction by instruction: at most 20 each, no lock prefix, no call, and the
# word addressed without an index register.  The same for operator new, which is a malloc of its own, and for both
# engines of the object caches, with limits of their own.  They are pinned in golden/fast_path.x86_64.txt.
#
#   tests/fast_path_golden.sh            compare (release build by gcc on x86-64; skipped with 77 elsewhere)
#   tests/fast_path_golden.sh --update   write the golden file anew
set -eu

# shellcheck source=shared/as_shipped.sh
. "$(dirname "$0")/shared/as_shipped.sh"
needs objdump python3

exec python3 - "$library" "$here/golden/fast_path.x86_64.txt" "${1:-}" <<'PYTHON'
import difflib, re, subprocess, sys

library, golden_path, update = sys.argv[1:4]
# Function, and the engine where there are two: the most instructions.
PATHS = {("malloc", None): 20, ("free", None): 20, ("_Znwm", None): 20,
         ("cpuslab_cache_alloc", "magazine"): 20, ("cpuslab_cache_free", "magazine"): 28,
         ("cpuslab_cache_alloc", "linked"): 26, ("cpuslab_cache_free", "linked"): 38}


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def fail(text):
    print("fast path:", text, file=sys.stderr)
    sys.exit(1)


def disassemble(function):
    """Address -> instruction text, for one function."""
    # By address: objdump knows a function that has two names under one of them only.
    extent = re.search(rf"^{function} [TW] ([0-9a-f]+) ([0-9a-f]+)$", output("nm", "-D", "-P", library), re.M)
    if not extent:
        fail(f"no function {function} in {library}")
    start, size = (int(number, 16) for number in extent.groups())
    text = output("objdump", "-d", "--no-show-raw-insn", f"--start-address={start}", f"--stop-address={start + size}",
                  library)
    code = {}
    for line in text.splitlines():
        row = re.match(r"\s*([0-9a-f]+):\t(.*)$", line)
        if row:
            code[int(row.group(1), 16)] = row.group(2).split("#")[0].strip()
    if not code:
        fail(f"no function {function} in {library}")
    return code


def walk(function, engine):
    """The instructions from the entry to ret when every conditional branch falls through: but for the first one
    of a function for both engines, which goes where the engine wants."""
    code = disassemble(function)
    order = sorted(code)
    following = dict(zip(order, order[1:]))
    at, path, seen, asked = order[0], [], set(), engine is None
    while True:
        if at not in code:
            fail(f"{function}: the straight path leaves the function at {at and hex(at)}")
        if at in seen:
            fail(f"{function}: the straight path loops at {hex(at)}")
        seen.add(at)
        text = code[at]
        name = text.split()[0]
        path.append(text)
        if name.startswith("ret"):
            return path
        branch = re.match(r"j(e|ne)\s+([0-9a-f]+) <", text)
        if branch and not asked:
            # The handle's byte is zero for magazines, and the map has the id of a magazine's page.
            asked = True
            at = int(branch.group(2), 16) if (branch.group(1) == "e") == (engine == "magazine") else following[at]
        elif name == "jmp":
            target = re.search(r"\b([0-9a-f]+) <", text)
            if not target:
                fail(f"{function}: an indirect jump: {text}")
            at = int(target.group(1), 16)
        else:
            at = following.get(at)


def memory_operands(text):
    """(segment, displacement, base, index) of each memory operand."""
    return re.findall(r"(%[c-gs]s:)?(-?0x[0-9a-f]+)?\((%\w+)?(?:,(%\w+)(?:,\d)?)?\)", text)


def check(function, path, most):
    listing = "\n  ".join(path)
    if len(path) > most:
        fail(f"{function} takes {len(path)} instructions, more than {most}:\n  {listing}")
    for text in path:
        if re.search(r"\block\b|\bxchg\b.*\(", text):
            fail(f"{function} locks the bus: {text}")
        if text.startswith("call"):
            fail(f"{function} calls: {text}")
    # The commit is the last instruction that writes memory; it names the register that holds the word's address.
    writes = [t for t in path if re.search(r"\)$", t) and not re.match(r"(cmp|test|lea|j|nop)", t)]
    if not writes:
        fail(f"{function} commits nothing:\n  {listing}")
    commit = writes[-1]
    segment, _, word, index = memory_operands(commit)[-1]
    if segment or not word or index or word == "%rip":
        fail(f"{function}: the commit has an index register or is not a word: {commit}")
    loads = 0
    # The register may have been something else before it was given the address.
    since = max(i for i, text in enumerate(path) if re.search(rf",{word}$", text))
    for text in path[since + 1:]:
        for operand in memory_operands(text):
            if word in operand[2:]:
                if operand[3]:
                    fail(f"{function}: the word is addressed with an index register: {text}")
                loads += text is not commit
    if not loads:
        fail(f"{function}: never reads the word that it writes:\n  {listing}")


def normal(text):
    """Without what moves when unrelated code does: rip-relative distances, branch targets, symbols."""
    text = re.sub(r"-?0x[0-9a-f]+\(%rip\)", "(%rip)", text)
    text = re.sub(r"\b[0-9a-f]+ <.*>", "slow", text)
    return re.sub(r"\s+", " ", text)


# The compiler that made the library, not the one that is installed.
comments = output("readelf", "-p", ".comment", library)
made_by = re.search(r"GCC: .*? (\d+)\.", comments)
compiler = "gcc " + (made_by.group(1) if made_by else "?")

lines = [compiler]
for (function, engine), most in PATHS.items():
    path = walk(function, engine)
    title = function + (f", {engine}" if engine else "")
    check(title, path, most)
    lines.append(f"{title}: {len(path)} instructions")
    lines += ["  " + normal(text) for text in path]

if update == "--update":
    with open(golden_path, "w") as file:
        file.write("\n".join(lines) + "\n")
    print("written:", golden_path)
    sys.exit(0)
with open(golden_path) as file:
    golden = file.read().splitlines()
if golden[0] != compiler:
    # Another compiler may choose otherwise; the counts hold for all.
    pick = lambda rows: [row for row in rows if not row.startswith("  ")][1:]
    golden, lines = pick(golden), pick(lines)
if golden != lines:
    print("\n".join(difflib.unified_diff(golden, lines, "golden", "this build", lineterm="")), file=sys.stderr)
    fail("it differs from the golden file (if that is meant: tests/fast_path_golden.sh --update)")
print("\n".join(row for row in lines if not row.startswith("  ")))
PYTHON
