# shellcheck shell=bash
# Clean roots for the tests of packages: sourced by packaging/*.sh.  Sets source, the tree, and folder, where roots and what is
# built are kept; ends with 77 where there are no roots to be had.
set -eu
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
folder=${CPUSLAB_PACKAGES:-/var/tmp/cpuslab-packages}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$folder"

fail() {
	echo "FAIL: $*" >&2
	exit 1
}

skip() {
	echo "$*"
	exit 77
}

# needs PROGRAM...
needs() {
	local program
	for program; do
		command -v "$program" >/dev/null || skip "no $program on this machine"
	done
}

# quietly COMMAND...: shows what it wrote if it fails.
quietly() {
	"$@" >"$work/log" 2>&1 || {
		tail -n 40 "$work/log"
		fail "$*"
	}
}

# copied FOLDER: the source tree without what was built in it.
copied() {
	mkdir -p "$1"
	tar -C "$source" --exclude='./build*' --exclude=./.git -cf - . | tar -C "$1" --no-same-owner -xf -
}

# origin LABEL: where this machine's apt finds what Debian calls so.
origin() {
	# shellcheck disable=SC2016
	apt-get indextargets --format '$(LABEL) $(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
		awk -v label="$1" '$1 == label { print $2; exit }' | sed 's|/$||'
}

# inside ROOT COMMAND...: with /proc, /dev and /sys, and processes that end with it.
inside() {
	local root=$1
	shift
	# shellcheck disable=SC2016
	setpriv --pdeathsig KILL unshare --mount --propagation private --pid --fork --kill-child bash -c '
		root=$1
		shift
		mount --rbind /sys "$root/sys" && mount --rbind /dev "$root/dev" && mount -t proc proc "$root/proc" &&
			mount -t tmpfs tmpfs "$root/tmp" || exit 1
		env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
			chroot "$root" "$@" </dev/null
		exit $?' bash "$root" "$@"
}

# base: a root with Debian's least, made once in $folder/base.
base() {
	local mirror
	[ "$(id -u)" -eq 0 ] || skip 'roots need root'
	PATH=$PATH:/usr/sbin:/sbin
	needs debootstrap setpriv unshare chroot
	[ ! -e "$folder/base" ] || return 0
	mirror=$(origin Debian)
	[ -n "$mirror" ] || skip "this machine's apt names no mirror"
	rm -rf "$folder/base.begun"
	quietly debootstrap --variant=minbase bookworm "$folder/base.begun" "$mirror"
	mv "$folder/base.begun" "$folder/base"
}

# fresh NAME: a copy of that root in $folder/NAME whose apt finds what this machine's finds; sets root.
fresh() {
	base
	root=$folder/$1
	rm -rf "$root"
	cp -a --reflink=auto "$folder/base" "$root"
	apt-config dump | grep '^Acquire::' >"$root/etc/apt/apt.conf.d/90machine" || true
	cp /etc/resolv.conf /etc/hosts "$root/etc/"
	quietly inside "$root" apt-get update -q
}
