#!/bin/bash
# Real programs in sandboxes that kill work under the library as they do without it: sshd (a login with a key), what
# systemd's set @system-service allows, bwrap with a seccomp file; with CPUSLAB_SOAK=1 also chronyd, tor and vsftpd with
# their own filters.  What is not installed, or does not work here without the library either, is left out by name.
# All sockets are on loopback.
set -eu
source=$(cd "$(dirname "$0")/.." && pwd)
library=$CPUSLAB_BUILD/libcpuslab.so
[ -z "${CPUSLAB_SANITIZE:-}" ] && [ "$(uname -m)" = x86_64 ] || exit 77
folder=$(mktemp -d)
service=
finish() {
	[ -z "$service" ] || kill "$service" 2>/dev/null || true
	rm -rf "$folder"
}
trap finish EXIT
ulimit -c 0
ran=0 failed=0
port=$((20000 + $$ % 20000))
chmod 755 "$folder"

# patiently COMMAND...: until it works, for a while.
patiently() {
	local try
	for ((try = 0; try < 150; try++)); do
		! "$@" >/dev/null 2>&1 || return 0
		sleep 0.1
	done
	return 1
}

# both NAME: runs the function try_NAME without the library, then with it.
both() {
	local name=$1 said=$folder/said.$1
	port=$((port + 1))
	if ! preload='' "try_$name" >"$said" 2>&1; then
		echo "$name: not here, without the library either"
		return
	fi
	port=$((port + 1))
	ran=$((ran + 1))
	if preload=$library "try_$name" >"$said" 2>&1; then
		echo "$name: ok"
	else
		echo "$name: works without the library, and not with it"
		tail -n 20 "$said"
		failed=1
	fi
}

# begin PROGRAM...: starts a service, which does not go into the background.
begin() {
	LD_PRELOAD=$preload "$@" &
	service=$!
	sleep 0.2
	[ -z "$preload" ] || grep -q libcpuslab "/proc/$service/maps"
}

# end: whether the service still runs; ends it.
end() {
	local status=0
	kill "$service" || status=1
	wait "$service" 2>/dev/null || true
	service=
	return $status
}

# ---- sshd ------------------------------------------------------------------------------------------------------

try_sshd() {
	local sshd=/usr/sbin/sshd here=$folder/sshd
	[ -x $sshd ] && command -v ssh && [ "$(id -u)" = 0 ] || return 1
	mkdir -p /run/sshd "$here"
	[ -e "$here/key" ] || ssh-keygen -q -t ed25519 -N '' -f "$here/key"
	cp "$here/key.pub" "$here/authorized"
	chmod 600 "$here"/*
	cat >"$here/config" <<-end
		ListenAddress 127.0.0.1:$port
		HostKey $here/key
		AuthorizedKeysFile $here/authorized
		PidFile none
		UsePAM no
		StrictModes no
		PermitRootLogin yes
	end
	begin $sshd -D -e -f "$here/config"
	login() {
		LD_PRELOAD=$preload ssh -F none -p "$port" -i "$here/key" -o BatchMode=yes -o StrictHostKeyChecking=no \
			-o UserKnownHostsFile=/dev/null root@127.0.0.1 'echo logged in'
	}
	local status=0
	patiently login && [ "$(login)" = 'logged in' ] || status=1
	end && return $status
}

# ---- systemd's set, and bwrap ----------------------------------------------------------------------------------

for name in confined allow_only; do
	"${CC:-cc}" -O1 -fno-builtin -pthread "$source/tests/sandbox/$name.c" -o "$folder/$name"
done
allowed=$({
	echo '#include <sys/syscall.h>'
	grep -v '^#' "$source/tests/sandbox/system-service" | tr -s ' ' '\n' | sed '/./s/^/SYS_/'
} | "${CC:-cc}" -E -P - | sed -nE 's/^ *([0-9]+)$/\1/p')
[ "$(wc -w <<<"$allowed")" -gt 200 ]
# The trial itself needs to sandbox its own child.
python='
import threading
def work():
    for i in range(20):
        x = [str(j) * (j % 50) for j in range(20000)]
        y = bytearray(3 << 20); y[::4096] = b"x" * len(y[::4096])
threads = [threading.Thread(target=work) for i in range(3)]
for t in threads: t.start()
for t in threads: t.join()
'

try_systemd_set() {
	# shellcheck disable=SC2086 # numbers
	LD_PRELOAD=$preload "$folder/allow_only" $allowed -- python3 -c "$python" &&
		LD_PRELOAD=$preload "$folder/allow_only" $allowed -- sh -c 'seq 200000 | sort --parallel=2 -S 40M -r | tail -1'
}

try_bwrap_file() {
	command -v bwrap || return 1
	# shellcheck disable=SC2086
	"$folder/allow_only" -w "$folder/filter" $allowed
	LD_PRELOAD=$preload bwrap --ro-bind / / --proc /proc --dev /dev --seccomp 9 python3 -c "$python" 9<"$folder/filter"
}

# ---- with filters of their own ---------------------------------------------------------------------------------

try_chronyd() {
	local here=$folder/chronyd
	command -v chronyd && [ "$(id -u)" = 0 ] || return 1
	mkdir -p "$here"
	chmod 700 "$here"
	printf '%s\n' 'local stratum 10' 'cmdport 0' "bindcmdaddress $here/socket" "port $port" 'bindaddress 127.0.0.1' \
		'allow 127.0.0.1' "pidfile $here/pid" "driftfile $here/drift" >"$here/config"
	begin chronyd -x -d -u root -F 1 -f "$here/config"
	sleep 3
	end
}

try_tor() {
	local here=$folder/tor
	command -v tor || return 1
	mkdir -p "$here"
	chmod 700 "$here"
	: >"$here/config"
	begin "$(command -v tor)" -f "$here/config" --defaults-torrc "$here/config" --Sandbox 1 --DataDirectory "$here/data" \
		--SocksPort "127.0.0.1:$port" --DisableNetwork 1
	sleep 5
	end
}

try_vsftpd() {
	local here=$folder/vsftpd
	command -v vsftpd && command -v curl && [ "$(id -u)" = 0 ] || return 1
	mkdir -p "$here/files" /var/run/vsftpd/empty
	seq 100000 >"$here/files/numbers"
	chmod 555 "$here/files"
	printf '%s\n' listen=YES listen_address=127.0.0.1 "listen_port=$port" anonymous_enable=YES "anon_root=$here/files" \
		seccomp_sandbox=YES background=NO secure_chroot_dir=/var/run/vsftpd/empty >"$here/config"
	chown root "$here/config"
	begin "$(command -v vsftpd)" "$here/config"
	fetch() {
		curl -s --max-time 10 "ftp://127.0.0.1:$port/numbers" | cmp - "$here/files/numbers"
	}
	local status=0
	patiently fetch || status=1
	end && return $status
}

both sshd
both systemd_set
both bwrap_file
if [ "${CPUSLAB_SOAK:-}" = 1 ]; then
	both chronyd
	both tor
	both vsftpd
fi
[ $failed = 0 ] || exit 1
[ $ran -gt 0 ] || exit 77
