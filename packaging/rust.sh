#!/bin/bash
# The crates: packed, put into a registry of this machine, and used from there by somebody's program, as from the public one;
# what is built in 40 s at most.  To publish: `cargo publish -p cpuslab-sys && cargo publish -p cpuslab`.
. "$(dirname "$0")/roots.sh"
needs cargo python3 git

copied "$work/tree"
export CARGO_TARGET_DIR=$work/target
cd "$work/tree/bindings/rust"
cargo fetch --quiet 2>"$work/log" || skip "no registry: $(tail -n 1 "$work/log")"
quietly cargo package --workspace --allow-dirty
mkdir -p "$work/registry/crates" "$work/registry/index"
cp "$work/target/package"/*.crate "$work/registry/crates/"
cargo metadata --format-version 1 --no-deps >"$work/metadata"
python3 - "$work/metadata" "$work/registry" <<'PYTHON'
import hashlib, json, pathlib, sys

metadata, registry = json.load(open(sys.argv[1])), pathlib.Path(sys.argv[2])
public = 'https://github.com/rust-lang/crates.io-index'
own = {package['name'] for package in metadata['packages']}
for package in metadata['packages']:
    name, version = package['name'], package['version']
    crate = (registry / f'crates/{name}-{version}.crate').read_bytes()
    dependencies = [{
        'name': each['name'], 'req': each['req'], 'features': each['features'], 'optional': each['optional'],
        'default_features': each['uses_default_features'], 'target': each['target'], 'kind': each['kind'] or 'normal',
        'registry': None if each['name'] in own else public,
    } for each in package['dependencies']]
    line = {'name': name, 'vers': version, 'deps': dependencies, 'cksum': hashlib.sha256(crate).hexdigest(), 'v': 2,
            'features': {}, 'features2': package['features'], 'yanked': False, 'links': package['links']}
    path = registry / 'index' / name[:2] / name[2:4] / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(line) + '\n')
(registry / 'index/config.json').write_text(json.dumps({'dl': f'file://{registry}/crates/{{crate}}-{{version}}.crate'}))
PYTHON
git -C "$work/registry/index" init -q -b main
git -C "$work/registry/index" add -A
git -C "$work/registry/index" -c user.name=test -c user.email=test@localhost commit -q -m index

export CARGO_REGISTRIES_LOCAL_INDEX=file://$work/registry/index CARGO_TARGET_DIR=$work/used
cd "$work"
quietly cargo new --quiet --vcs none program
cd program
quietly cargo add --registry local cpuslab --features lock_api,allocator-api2
cat >src/main.rs <<'RUST'
#[global_allocator]
static ALLOCATOR: cpuslab::Cpuslab = cpuslab::Cpuslab;

fn main() {
    let cache = cpuslab::KmemCache::new("cells").unwrap();
    let cells: Vec<_> = (0..10_000u64).map(|i| cache.alloc([i; 8]).unwrap()).collect();
    let total = cpuslab::ByteMutex::new(0);
    std::thread::scope(|scope| {
        for part in cells.chunks(2500) {
            let total = &total;
            scope.spawn(move || *total.lock() += part.iter().map(|cell| cell[7]).sum::<u64>());
        }
    });
    assert_eq!(*total.lock(), 49_995_000);
    assert!(cpuslab::counters().slabs_created > 0);
    println!("cpuslab {} in a program of a registry", cpuslab::version());
}
RUST
TIMEFORMAT='%U %S %R'
used=$( { time cargo build --release --quiet 2>"$work/log"; } 2>&1) || fail "$(cat "$work/log")"
read -r user system real <<<"$used"
cargo run --release --quiet || fail 'the program'
echo "built in $real s, $user + $system s of CPU time"
awk -v cpu="$user" 'BEGIN { exit cpu > 40 }' || fail "building takes $user s of CPU time"
! grep -q 'path+file' Cargo.lock || fail 'not from the registry'
