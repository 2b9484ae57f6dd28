#[global_allocator]
static ALLOCATOR: cpuslab::Cpuslab = cpuslab::Cpuslab;

use std::io::{Read, Seek};
use std::os::fd::AsRawFd;

fn written(write: impl FnOnce(i32) -> bool) -> Vec<u8> {
    let path = std::env::temp_dir().join(format!("cpuslab-{}-{:?}", std::process::id(), std::thread::current().id()));
    let mut file = std::fs::OpenOptions::new().create(true).read(true).write(true).truncate(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(write(file.as_raw_fd()));
    let mut text = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut text).unwrap();
    text
}

#[test]
fn counters_and_tables() {
    let blocks: Vec<_> = (0..10_000).map(|i| vec![0u8; 1 + i % 500]).collect();
    assert!(cpuslab::counters().slabs_created > 0);
    assert!(written(cpuslab::write_stats_json).starts_with(b"{"));
    assert!(written(cpuslab::write_slabinfo).starts_with(b"slabinfo - version"));
    assert!(!cpuslab::write_slabinfo(-1));
    drop(blocks);
}

#[test]
fn a_profile_on_and_off() {
    assert!(cpuslab::profile::start(1 << 16));
    let blocks: Vec<_> = (0..4000).map(|_| vec![1u8; 4000]).collect();
    cpuslab::profile::stop();
    let text = written(|file| cpuslab::profile::write(file, cpuslab::profile::Format::Text));
    assert!(text.starts_with(b"heap profile:"), "{}", String::from_utf8_lossy(&text));
    assert!(!written(|file| cpuslab::profile::write(file, cpuslab::profile::Format::Proto)).is_empty());
    drop(blocks);
}
