#!/bin/bash
# The Debian packages: built twice in a clean root, byte for byte alike; lintian has nothing to say; then in another root they are
# installed, used (debian/tests, which autopkgtest runs too), upgraded and removed.
#
#   packaging/debian.sh [use]    use: the packages that an earlier run has built
. "$(dirname "$0")/roots.sh"
base
needs lintian

version=$(dpkg-parsechangelog -l "$source/debian/changelog" -S Version)
# built NAME UMASK TIMEZONE: in a folder of that name, whose packages are then in $folder/packages-NAME.
built() {
	copied "$root/$1/cpuslab"
	quietly inside "$root" sh -c "umask $2 && export TZ=$3 && cd /$1/cpuslab && dpkg-buildpackage -us -uc"
	rm -rf "$folder/packages-$1"
	mkdir "$folder/packages-$1"
	mv "$root/$1"/*.deb "$root/$1"/*.dsc "$root/$1"/*.changes "$root/$1"/*.buildinfo "$root/$1"/*.tar.xz "$folder/packages-$1/"
	rm -rf "${root:?}/$1"
}
build() {
	fresh build
	# shellcheck disable=SC2046
	quietly inside "$root" apt-get install -y -q --no-install-recommends build-essential fakeroot \
		$(sed -n 's/^Build-Depends: //p' "$source/debian/control" | sed 's/([^)]*)//g; s/,/ /g; s/debhelper-compat/debhelper/')
	built first 022 UTC
	built once-more 027 Asia/Tokyo
	for package in "$folder"/packages-first/*.deb; do
		cmp "$package" "$folder/packages-once-more/${package##*/}" || fail 'two builds differ'
	done
	echo "reproducible: $(cd "$folder/packages-first" && ls ./*.deb | wc -l) packages"
	lintian --allow-root --fail-on error,warning "$folder/packages-first"/*.changes >"$work/lintian" 2>&1 && [ ! -s "$work/lintian" ] ||
		fail "$(cat "$work/lintian")"
	echo 'lintian: nothing'
}
[ "${1:-}" = use ] || build

fresh use
mkdir "$root/packages"
cp "$folder"/packages-first/*.deb "$root/packages/"
# A service would want to start.
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod +x "$root/usr/sbin/policy-rc.d"
quietly inside "$root" sh -c "apt-get install -y -q --no-install-recommends /packages/cpuslab_${version}_*.deb /packages/libcpuslab0_${version}_*.deb"
quietly inside "$root" apt-get install -y -q --no-install-recommends redis-server redis-tools python3-minimal gcc libc6-dev pkg-config cmake ninja-build
copied "$root/cpuslab"
inside "$root" sh -ec 'cd /cpuslab && debian/tests/run' >"$work/log" 2>&1 || fail "cpuslab run redis-server: $(tail -n 20 "$work/log")"
echo 'cpuslab run redis-server: works'
quietly inside "$root" sh -c "apt-get install -y -q --no-install-recommends /packages/libcpuslab-dev_*.deb /packages/cpuslab-bench_*.deb"
inside "$root" sh -ec 'cd /cpuslab && debian/tests/build' >"$work/log" 2>&1 || fail "pkg-config, CMake: $(tail -n 20 "$work/log")"
cat "$work/log"
inside "$root" cpuslab bench start --reps 1 >"$work/log" 2>&1 || fail "cpuslab bench: $(tail -n 20 "$work/log")"

# The next version, of the same files.
next=$version+next
mkdir "$work/next"
for package in "$folder"/packages-first/*.deb; do
	case $package in *-dbgsym_*) continue ;; esac
	rm -rf "$work/unpacked"
	dpkg-deb -R "$package" "$work/unpacked"
	sed -i "s/^Version: .*/Version: $next/; s/(= $version)/(= $next)/" "$work/unpacked/DEBIAN/control"
	dpkg-deb --root-owner-group -b "$work/unpacked" "$root/packages/next-${package##*/}" >/dev/null
done
quietly inside "$root" sh -c 'apt-get install -y -q --no-install-recommends /packages/next-*.deb'
[ "$(inside "$root" dpkg-query -W -f '${Version}' libcpuslab0)" = "$next" ] || fail 'not upgraded'
inside "$root" cpuslab run -- ls / >/dev/null || fail 'after the upgrade'
quietly inside "$root" apt-get purge -y -q cpuslab cpuslab-bench libcpuslab-dev libcpuslab0
left=$(find "$root/usr" "$root/etc" "$root/var" -name '*cpuslab*' ! -path '*/var/log/*' ! -path '*/var/cache/*' ! -path '*/archives/*')
[ -z "$left" ] || fail "left behind: $left"
echo 'upgraded, and removed without a trace'
