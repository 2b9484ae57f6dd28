use std::alloc::{GlobalAlloc, Layout};
use std::thread;

#[global_allocator]
static ALLOCATOR: cpuslab::Cpuslab = cpuslab::Cpuslab;

extern "C" {
    fn malloc(size: usize) -> *mut u8;
}

#[test]
fn malloc_is_the_librarys() {
    let address = malloc as *const () as usize;
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let holder = maps
        .lines()
        .find(|line| {
            let (from, to) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
            (usize::from_str_radix(from, 16).unwrap()..usize::from_str_radix(to, 16).unwrap()).contains(&address)
        })
        .unwrap();
    let program = std::env::current_exe().unwrap();
    assert!(
        holder.ends_with(program.to_str().unwrap()) || holder.contains("libcpuslab.so"),
        "malloc comes from {holder}"
    );
    assert!(cpuslab::version().starts_with("0."));
}

#[test]
fn alignments_and_contents_survive_realloc() {
    for shift in 0..21 {
        for size in [1, 100, 5000, 300_000] {
            let layout = Layout::from_size_align(size, 1 << shift).unwrap();
            unsafe {
                let block = ALLOCATOR.alloc(layout);
                assert!(!block.is_null() && block as usize % layout.align() == 0);
                block.write_bytes(0xa5, size);
                let grown = ALLOCATOR.realloc(block, layout, 3 * size);
                assert!(!grown.is_null() && grown as usize % layout.align() == 0);
                assert!(std::slice::from_raw_parts(grown, size).iter().all(|&byte| byte == 0xa5));
                ALLOCATOR.dealloc(grown, Layout::from_size_align(3 * size, layout.align()).unwrap());

                let zeroed = ALLOCATOR.alloc_zeroed(layout);
                assert!(!zeroed.is_null() && zeroed as usize % layout.align() == 0);
                assert!(std::slice::from_raw_parts(zeroed, size).iter().all(|&byte| byte == 0));
                ALLOCATOR.dealloc(zeroed, layout);
            }
        }
    }
}

/// The compiler knows C's names, and may leave out a call whose block is compared with null and nothing else.
fn is_null(block: *mut u8) -> bool {
    unsafe { std::ptr::read_volatile(&block) }.is_null()
}

#[test]
fn impossible_sizes_are_null() {
    let layout = Layout::from_size_align(isize::MAX as usize - 64, 64).unwrap();
    unsafe {
        assert!(is_null(ALLOCATOR.alloc(layout)));
        assert!(is_null(ALLOCATOR.alloc_zeroed(layout)));
    }
}

#[test]
fn blocks_cross_threads() {
    let (send, receive) = std::sync::mpsc::sync_channel::<Vec<u8>>(64);
    let producer = thread::spawn(move || {
        for i in 0..20_000usize {
            send.send(vec![i as u8; 1 + i % 3000]).unwrap();
        }
    });
    for (i, block) in receive.iter().enumerate() {
        assert!(block.len() == 1 + i % 3000 && block.iter().all(|&byte| byte == i as u8));
    }
    producer.join().unwrap();
}
