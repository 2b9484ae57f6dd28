use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

static DROPPED: AtomicUsize = AtomicUsize::new(0);

struct Counted(usize);

impl Drop for Counted {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn values_are_dropped_once() {
    let cache = cpuslab::KmemCache::new("counted").unwrap();
    let one = cache.alloc(Counted(1)).ok().unwrap();
    assert_eq!(one.0, 1);
    drop(one);
    assert_eq!(DROPPED.load(Ordering::Relaxed), 1);
    forget_value(cache.alloc(Counted(2)).ok().unwrap().into_inner());
    assert_eq!(DROPPED.load(Ordering::Relaxed), 1);
    let mut many: Vec<_> = (0..1000).map(|_| None).collect();
    assert_eq!(cache.alloc_bulk(&mut many, Counted), 1000);
    assert!(many.iter().enumerate().all(|(index, one)| one.as_ref().unwrap().0 == index));
    many.swap_remove(500);
    cache.free_bulk(&mut many);
    assert_eq!(DROPPED.load(Ordering::Relaxed), 1001);
}

fn forget_value(value: Counted) {
    std::mem::forget(value)
}

#[test]
fn a_panic_while_filling_leaves_nothing_behind() {
    let cache = cpuslab::KmemCache::new("panics").unwrap();
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut places: Vec<Option<cpuslab::CacheBox<'_, [u64; 9]>>> = (0..100).map(|_| None).collect();
        cache.alloc_bulk(&mut places, |index| if index == 70 { panic!("on purpose") } else { [index as u64; 9] })
    }));
    assert!(result.is_err());
    // With an object left, dropping the cache would write a line; and a second cache of that name is its own.
    drop(cache);
}

#[test]
fn alignment_and_threads() {
    #[repr(align(256))]
    struct Line([u8; 300]);

    let cache = cpuslab::KmemCache::new("lines").unwrap();
    thread::scope(|scope| {
        for thread in 0..4u8 {
            let cache = &cache;
            scope.spawn(move || {
                let lines: Vec<_> = (0..1000).map(|_| cache.alloc(Line([thread; 300])).ok().unwrap()).collect();
                for line in &lines {
                    assert_eq!(&**line as *const Line as usize % 256, 0);
                    assert!(line.0.iter().all(|&byte| byte == thread));
                }
            });
        }
    });
}

#[test]
fn constructed_once() {
    #[derive(Default)]
    struct Kept(u64);

    let cache = cpuslab::ConstructedCache::<Kept>::new("kept").unwrap();
    let mut one = cache.alloc().unwrap();
    assert_eq!(one.0, 0);
    one.0 = 7;
    let address = &*one as *const Kept;
    drop(one);
    let again = cache.alloc().unwrap();
    assert!(!std::ptr::eq(&*again, address) || again.0 == 7);
}

#[test]
fn names_that_cannot_be() {
    assert!(cpuslab::KmemCache::<u8>::new("").is_none());
    assert!(cpuslab::KmemCache::<u8>::new(&"x".repeat(256)).is_none());
    assert!(cpuslab::KmemCache::<u8>::new("a\0b").is_none());
    assert!(cpuslab::KmemCache::<[u8; 5 << 20]>::new("huge").is_none());
}
