#!/bin/bash
# test.sh BUILD: the crate's tests and its example, from the sources that it carries and linked to the archive and the shared
# library of a build; and that it keeps to the Rust that its Cargo.toml names, where clippy can tell.
set -eu
cd "$(dirname "$0")"
command -v cargo >/dev/null 2>&1 || {
	echo "no cargo on this machine"
	exit 77
}
# What the crates build with is of the public registry.
cargo fetch --quiet || {
	echo "no registry to be reached"
	exit 77
}
build=$(cd "../../${1:-build}" && pwd)
export CARGO_TARGET_DIR=$build/rust LD_LIBRARY_PATH=$build
traits=allocator-api2,lock_api
cargo test --offline --release --quiet --features $traits
CPUSLAB_LIB_DIR=$build cargo test --offline --release --quiet --tests
CPUSLAB_LIB_DIR=$build cargo test --offline --release --quiet --tests --features shared
cargo run --offline --release --quiet --example words
! cargo clippy --version >/dev/null 2>&1 ||
	cargo clippy --offline --quiet --workspace --all-targets --features $traits -- -D warnings -D clippy::incompatible_msrv
