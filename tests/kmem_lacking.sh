#!/bin/sh
# SPDX-License-Identifier: MIT
# A header of the kernel that include/kernel lacks is an error that says so, and not the system's file of the same name,
# which has something else in it; with CPUSLAB_UAPI defined it is that file.  The C library's headers need none of this.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
clang=$("$here/../scripts/clang" clang) || clang=''

fail() {
	echo "FAIL kmem_lacking: $*" >&2
	exit 1
}

# takes COMPILER HOW TEXT: compiles or preprocesses it; what the compiler says is in $work/said.
takes() {
	printf '%b' "$3" | "$1" -std=gnu11 "$2" -D_GNU_SOURCE -Wall -Wextra -Werror -I"$here/../include" \
		-I"$here/../include/kernel" -x c - >"$work/said" 2>&1
}

for compiler in gcc $clang; do
	for header in wait fs net poll time signal uio tty input netdevice pci random socket in perf_event; do
		! takes "$compiler" -fsyntax-only "#include <linux/slab.h>\n#include <linux/$header.h>\nint x;\n" ||
			fail "$compiler takes another <linux/$header.h> for the kernel's"
		grep -q "cpuslab has no <linux/$header.h>" "$work/said" || fail "$compiler, $header: $(cat "$work/said")"
		[ -e "/usr/include/linux/$header.h" ] || continue
		takes "$compiler" -E "#define CPUSLAB_UAPI\n#include <linux/$header.h>\n" || fail "$compiler: $(cat "$work/said")"
		grep -q "\"/usr/include/linux/$header.h\"" "$work/said" || fail "$compiler does not get to <linux/$header.h>"
	done
	for header in errno.h limits.h fcntl.h poll.h signal.h time.h sys/mount.h sys/socket.h sys/stat.h sys/wait.h \
		sys/fanotify.h sys/prctl.h sys/quota.h sys/pci.h sys/soundcard.h netinet/in.h netinet/if_ether.h net/ethernet.h; do
		takes "$compiler" -fsyntax-only "#include <linux/slab.h>\n#include <$header>\nint x;\n" || fail "$compiler, <$header>: $(cat "$work/said")"
	done
done
# Each of them names itself.
for file in "$here"/../include/kernel/linux/*.h; do
	name=$(basename "$file")
	! grep -q '#error "cpuslab has no' "$file" || [ "$(grep -c "<linux/$name>" "$file")" = 2 ] || fail "$name names another"
done
