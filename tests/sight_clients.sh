#!/bin/bash
# `cpuslab export` serves all clients at once: silent and slow ones, thousands of them, those that hang up or reset
# the connection, those that ask in pieces or for too much; also where it has few descriptors, or none.
set -u
# shellcheck source-path=SCRIPTDIR source=shared/sight.bash
. "$(dirname "$0")/shared/sight.bash"
command -v python3 >/dev/null || { echo "skipped: no python3 on this machine" && exit 77; }

# What the answers are about: no other process of this machine has this name.
alone=exported_$$
mkdir "$work/many"
cp "$build/tests/target_caches" "$work/many/$alone"

# serve FILES: on an address of its own, with so many descriptors at most.
serve() {
	rm -f "$work/url"
	(ulimit -n "$1" && exec "$cpuslab" export --listen 127.0.0.1:0 "$alone") >"$work/url" 2>"$work/told" &
	server=$!
	begun+=("$server")
	disown "$server"
	eventually test -s "$work/url"
	port=$(sed 's|.*:\([0-9]*\)/.*|\1|' "$work/url")
}
# clients KIND...: those of such kinds.
clients() {
	python3 "$(dirname "$0")/shared/export_clients.py" "$port" "$server" "$@" 2>"$work/error" || fail "$(cat "$work/error" "$work/told")"
	kill -0 "$server" || fail "it ended: $(cat "$work/told")"
}

begin "$work/many/$alone" 10 2
serve "$(ulimit -Hn)"
clients silent pieces kinds resets together short_of_files thousands
kill -KILL "$server"
serve 160
clients crowded kinds
kill -KILL "$server" "$pid"

begin "$work/many/$alone" 12000 2
serve 1000
clients slow resets together
