#!/bin/bash
# malloc_info() is XML for a parser of others, whatever caches are called, and says the same as mallinfo2(), which says
# what the program allocated.
set -eu
command -v python3 >/dev/null || {
	echo "no python3 here"
	exit 77
}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

cat >"$folder/compare.py" <<'END'
import sys
from xml.etree import ElementTree

root = ElementTree.parse(sys.argv[1]).getroot()
names = ["arena", "hblks", "hblkhd", "fsmblks", "uordblks", "fordblks", "keepcost"]
info = dict(zip(names, map(int, open(sys.argv[2]).read().split()), strict=True))
caches = root.findall("cache")
system = {element.get("type"): int(element.get("size")) for element in root.findall("system")}
large, huge, guarded = (root.find(name) for name in ("large", "huge", "guarded"))
failed = False


def same(what, one, other):
    global failed
    if one != other:
        failed = True
        print(f"{what}: {one} is not {other}")


def between(what, least, value, most):
    global failed
    if not least <= value <= most:
        failed = True
        print(f"{what}: {value} is not in {least}..{most}")


def total(attribute):
    return sum(int(cache.get("size")) * int(cache.get(attribute)) for cache in caches)


same("root", root.tag, "malloc")
same("arena", info["arena"], system["heap"])
same("keepcost", info["keepcost"], system["dirty"])
same("hblks", info["hblks"], int(huge.get("mappings")) + int(guarded.get("live")))
same("uordblks", info["uordblks"], total("live") + int(large.get("size")))
same("fsmblks", info["fsmblks"], total("hoarded"))
same("fordblks", info["fordblks"], info["arena"] - info["uordblks"])
# What the program allocated: 5000 of 1000 bytes, 3 MiB, 6 GiB; and what libc allocates for itself.
known = 5000 * 1000 + (3 << 20)
between("uordblks", known, info["uordblks"], known * 5 // 4 + (1 << 20))
between("hblkhd", 6 << 30, info["hblkhd"], (6 << 30) + (1 << 20))
same("huge mappings", int(huge.get("mappings")), 2)
same("large runs", int(large.get("runs")), 3)
shown = [cache.get("name") for cache in caches]
for name in ("<&>\"'", "]]>", "a b?c?d?e", "?? ??", "&amp;", "<!--", "<?xml", "%s%n%d"):
    if name not in shown:
        failed = True
        print(f"no cache {name} among {shown}")
sys.exit(failed)
END

for options in vcpu:auto vcpu:slot; do
	CPUSLAB_OPTIONS=$options "$CPUSLAB_BUILD/tests/target_information" >"$folder/xml" 2>"$folder/figures"
	python3 "$folder/compare.py" "$folder/xml" "$folder/figures"
done
