#!/bin/sh
# SPDX-License-Identifier: MIT
# Where the parts of libcpuslab.so lie (cmake/layout.ld): the code that every program needs, and what many need, are
# segments of their own, of no more pages than they have; the symbols with the read-only data likewise;
# the variables that every program has lie on three pages, each of which ends where a table begins, and what the
# dynamic linker protects lies on one.
set -eu

# shellcheck source=shared/as_shipped.sh
. "$(dirname "$0")/shared/as_shipped.sh"
needs readelf
readelf -SW "$library" | grep -q ' \.text\.far ' || skip "a linker that does not read cmake/layout.ld"

# section NAME: its address and size, in hexadecimal.
section() {
	readelf -SW "$library" | sed -E 's/^ *\[ *[0-9]+\] //' | awk -v name="$1" '$1 == name { print $3, $5 }'
}

failed=0
# at_most WHAT BYTES BOUND
at_most() {
	printf '%-50s %7d of %d\n' "$1" "$2" "$3"
	[ "$2" -le "$3" ] || failed=1
}

read -r init _ <<END
$(section .init)
END
read -r fini fini_bytes <<END
$(section .fini)
END
read -r large large_bytes <<END
$(section .text.large)
END
read -r far _ <<END
$(section .text.far)
END
read -r ebb ebb_bytes <<END
$(section .text.ebb)
END
read -r near_data near_data_bytes <<END
$(section .rodata.near)
END
read -r protected _ <<END
$(section .tdata)
END
read -r variables _ <<END
$(section .data)
END
read -r fields _ <<END
$(section .bss.fields)
END
read -r classes _ <<END
$(section .bss.classes)
END

# address NAME: of a variable; of those of that name, the first.
address() {
	nm "$library" | awk -v name="$1" '$3 == name { print $1 }' | sort | head -n 1
}
# The compilers that releases are measured with; others make some code longer, by a page (gcc 14 to 16).
case $(readelf -p .comment "$library") in
*'GCC: (Debian 12.'* | *'clang version 16.'*) near=61440 ;;
*) near=65536 ;;
esac
at_most "bytes from where the system begins to read to the code" $((0x$init % 65536)) 0
for alignment in $(readelf -lW "$library" | awk '$1 == "LOAD" { print $NF }'); do
	at_most "bytes that a segment's alignment lacks of 64 KiB" $((65536 - alignment)) 0
done
# At most what one read brings in; 56 KiB before it had what a forked child asks.
at_most "code that every program needs" $((0x$fini + 0x$fini_bytes - 0x$init)) $near
at_most "code that many need" $((0x$large_bytes)) 20480
at_most "code of ebbs" $((0x$ebb_bytes)) 16384
at_most "bytes from where the system begins to read to the code of ebbs" $((0x$ebb % 65536)) 0
at_most "symbols, relocations and read-only data" $((0x$near_data + 0x$near_data_bytes)) 24576
at_most "what the dynamic linker protects" $((0x$variables - 0x$protected)) 4096
at_most "bytes from where a page begins to the variables" $((0x$variables % 4096)) 0
at_most "variables, up to the table of vCPU areas" $((0x$(address first_areas) + 64 - 0x$variables)) 4096
at_most "what readers find, up to the table of object sizes" \
	$((0x$(address magazine_usual_bytes) + 256 - 0x$fields)) 4096
# The records of 32 pages lie on the page before, the places of malloc's caches on this one: 107 are the numbers up to
# the last of them (CENSUS_FIRST, src/magazine/census.h, and SIZE_CLASSES, src/malloc/size_class.h).
at_most "records and names, up to the table of caches" $((0x$(address census_caches) + 107 * 8 - 0x$classes - 512)) 4096
at_most "bytes from where a page begins to the records" $(((0x$classes + 512) % 4096)) 0

# lies_before FIRST END WHAT NAME...: functions that lie among WHAT.
lies_before() {
	first=$1 end=$2 what=$3
	shift 3
	for name; do
		address=$(nm "$library" | awk -v name="$name" '$3 == name { print $1 }')
		if [ -z "$address" ]; then
			echo "no function $name in $library" >&2
			failed=1
		elif [ $((0x$address)) -lt $((0x$first)) ] || [ $((0x$address)) -ge $((0x$end)) ]; then
			echo "$name does not lie among what $what" >&2
			failed=1
		fi
	done
}

# Some of what each start or each busy program comes through, of every room.
lies_before "$init" "$fini" "all programs need" has_missed_seldom alloc_from_slab process_settle malloc free realloc size_class_init root_publish \
	options_init magazine_alloc_requested magazine_free_missed depot_take_filled depot_take_empty \
	slab_alloc_batch slab_free_batch page_alloc page_free run_init layout_init metadata_alloc vcpu_init vcpu_enter \
	os_map os_commit os_membarrier_begin os_milliseconds guard_begin profile_begin magazine_tick slab_hollow \
	hollow_forget huge_is_isolated magazine_tick_profile cpuslab_spin_lock_slow \
	page_tick huge_purge see_off_next depot_depart drain_leaving
lies_before "$ebb" "$(printf %x $((0x$ebb + 0x$ebb_bytes)))" "ebbs come through" follow_ebb depot_ebb page_ebb metadata_ebb \
	page_purge slab_cache_shrink page_hollow os_process_id block_purge
lies_before "$large" "$far" "many programs need" realloc_special realloc_grown large_free run_recall_headroom
exit $failed
