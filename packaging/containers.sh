#!/bin/bash
# The Dockerfile for Debian, carried out line by line in clean roots, since there is no daemon to be had: the second one runs a
# program with the preloaded library in a name space of its own, and the command looks into it from outside.
. "$(dirname "$0")/roots.sh"
base
needs bwrap

file=$source/packaging/containers/Dockerfile.debian
stage=0
variables=()
while read -r instruction arguments; do
	case $instruction in
	FROM)
		stage=$((stage + 1))
		fresh "image$stage"
		;;
	RUN) quietly inside "$root" sh -c "$arguments" ;;
	COPY)
		if [[ $arguments = --from=cpuslab\ * ]]; then
			read -r _ from to <<<"$arguments"
			mkdir -p "$root$to"
			cp -L "$folder/image1$from" "$root$to"
		else
			copied "$root${arguments#. }"
		fi
		;;
	ENV) variables+=(--setenv "${arguments%%=*}" "${arguments#*=}") ;;
	'' | \#*) ;;
	*) fail "what is $instruction in $file?" ;;
	esac
done <"$file"
# contained COMMAND...: in the image, by somebody without rights, who sees no other processes.
contained() {
	bwrap --ro-bind "$root" / --proc /proc --dev /dev --tmpfs /tmp --unshare-pid --unshare-ipc --unshare-uts --die-with-parent --uid 65534 \
		--unshare-user --clearenv --setenv PATH /usr/bin:/bin "${variables[@]}" "$@"
}
contained sh -c 'cat /proc/self/maps' | grep -q 'libcpuslab\.so' || fail 'not preloaded in the image'
contained sleep 30 &
process=''
for _ in $(seq 50); do
	sleep 0.1
	for each in $(pgrep -x sleep); do
		! grep -q ' /usr/local/lib/libcpuslab' "/proc/$each/maps" 2>/dev/null || process=$each
	done
	[ -z "$process" ] || break
done
[ -n "$process" ] || fail 'no process in the image'
"$folder/image1/usr/local/bin/cpuslab" top --once "$process" >"$work/log" 2>&1 || fail "cpuslab top: $(cat "$work/log")"
grep -q malloc- "$work/log" || fail "cpuslab top: $(cat "$work/log")"
kill "$process" 2>/dev/null || true
wait 2>/dev/null || true
echo 'Debian image: preloaded; cpuslab top from outside sees its heap'
