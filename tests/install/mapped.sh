#!/bin/sh
# Succeeds when the library is mapped into this very shell.
grep -q libcpuslab /proc/$$/maps
