#!/bin/bash
# The drop-in for a service, read by systemd.
. "$(dirname "$0")/roots.sh"
needs systemd-analyze
mkdir "$work/probe.service.d"
printf '[Unit]\nDescription=a service\n[Service]\nExecStart=/bin/true\n' >"$work/probe.service"
cp "$source/packaging/systemd/cpuslab.conf" "$work/probe.service.d/"
systemd-analyze verify "$work/probe.service" >"$work/log" 2>&1 && ! grep cpuslab.conf "$work/log" || fail "$(cat "$work/log")"
# A line that is wrong is seen.
echo 'MemoryDenyWriteExecute=perhaps' >>"$work/probe.service.d/cpuslab.conf"
systemd-analyze verify "$work/probe.service" >"$work/log" 2>&1 || true
grep -q 'cpuslab.conf:.*perhaps' "$work/log" || fail 'the drop-in was not read'
echo 'systemd-analyze verify: nothing'
