#!/bin/bash
# test.sh BUILD: the crate's tests and its example, linked to the archive and to the shared library of a build; and that
# it keeps to the Rust that its Cargo.toml names, where clippy can tell.
set -eu
cd "$(dirname "$0")"
command -v cargo >/dev/null 2>&1 || {
	echo "no cargo on this machine"
	exit 77
}
CPUSLAB_LIB_DIR=$(cd "../../${1:-build}" && pwd)
export CPUSLAB_LIB_DIR CARGO_TARGET_DIR=$CPUSLAB_LIB_DIR/rust LD_LIBRARY_PATH=$CPUSLAB_LIB_DIR
cargo test --offline --release --quiet
cargo test --offline --release --quiet --features shared
cargo run --offline --release --quiet --example words
! cargo clippy --version >/dev/null 2>&1 ||
	cargo clippy --offline --quiet --all-targets -- -D clippy::incompatible_msrv
