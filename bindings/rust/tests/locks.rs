use std::cell::UnsafeCell;
use std::thread;

struct Shared<L>(L, UnsafeCell<u64>);
unsafe impl<L: Sync> Sync for Shared<L> {}

macro_rules! excludes {
    ($name:ident, $lock:ty) => {
        #[test]
        fn $name() {
            static SHARED: Shared<$lock> = Shared(<$lock>::new(), UnsafeCell::new(0));
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        for _ in 0..50_000 {
                            SHARED.0.lock();
                            unsafe {
                                *SHARED.1.get() += 1;
                                SHARED.0.unlock();
                            }
                        }
                    });
                }
            });
            assert_eq!(unsafe { *SHARED.1.get() }, 200_000);
            assert!(SHARED.0.try_lock() && !SHARED.0.try_lock() && SHARED.0.is_locked());
            unsafe { SHARED.0.unlock() };
            assert!(!SHARED.0.is_locked());
        }
    };
}
excludes!(byte_lock, cpuslab::ByteLock);
excludes!(spin_lock, cpuslab::SpinLock);

#[test]
fn sizes_are_those_of_c() {
    assert_eq!((std::mem::size_of::<cpuslab::ByteLock>(), std::mem::size_of::<cpuslab::SpinLock>()), (1, 4));
}

#[cfg(feature = "lock_api")]
#[test]
fn mutexes() {
    let mutex = cpuslab::SpinMutex::new(vec![0]);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..1000).for_each(|i| mutex.lock().push(i)));
        }
    });
    assert_eq!(mutex.lock().len(), 4001);
}

#[cfg(feature = "allocator-api2")]
#[test]
fn vectors_of_the_allocator() {
    let mut numbers = allocator_api2::vec::Vec::new_in(cpuslab::Cpuslab);
    (0..10_000u64).for_each(|i| numbers.push(i));
    assert_eq!(numbers.iter().sum::<u64>(), 49_995_000);
    let mut nothing = allocator_api2::vec::Vec::<(), _>::new_in(cpuslab::Cpuslab);
    nothing.push(());
}
