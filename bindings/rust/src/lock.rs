//! The locks of `<cpuslab/lock.h>`: the paths that meet nobody here, the others in the library.
use core::sync::atomic::{compiler_fence, AtomicU8, Ordering};
use cpuslab_sys as c;

const LOCKED: u8 = 0x01;
const WAITERS: u8 = 0x80;

/// A sleeping lock of one byte (`cpuslab_pagelock`): waiters sleep in the kernel, in nearly fair order.
#[repr(transparent)]
#[derive(Debug, Default)]
pub struct ByteLock(AtomicU8);

impl ByteLock {
    /// An unlocked lock.
    pub const fn new() -> Self {
        Self(AtomicU8::new(0))
    }

    fn address(&self) -> *mut u8 {
        &self.0 as *const AtomicU8 as *mut u8
    }

    /// Waits until the lock is this thread's.
    #[inline]
    pub fn lock(&self) {
        if self.0.compare_exchange(0, LOCKED, Ordering::Acquire, Ordering::Relaxed).is_err() {
            // SAFETY: the lock lives as long as this borrow.
            unsafe { c::cpuslab_pagelock_lock_slow(self.address()) }
        }
    }

    /// Takes the lock if that needs no waiting.
    #[inline]
    pub fn try_lock(&self) -> bool {
        self.0.compare_exchange(0, LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok()
            // SAFETY: as above.
            || unsafe { c::cpuslab_pagelock_trylock_slow(self.address()) }
    }

    /// Gives the lock to whoever comes first.
    ///
    /// # Safety
    /// The caller holds it.
    #[inline]
    pub unsafe fn unlock(&self) {
        let address = self.address();
        // The lock may be gone once it is unlocked: from then on it is an address alone.
        if self.0.fetch_and(!LOCKED, Ordering::Release) & WAITERS != 0 {
            c::cpuslab_pagelock_wake_unlocked(address)
        }
    }

    /// Whether somebody holds it.
    pub fn is_locked(&self) -> bool {
        self.0.load(Ordering::Relaxed) & LOCKED != 0
    }
}

/// A lock of four bytes whose unlocking is a plain store (`cpuslab_spinlock`), for sections of a few instructions.
#[repr(C, align(4))]
#[derive(Debug, Default)]
pub struct SpinLock {
    locked: AtomicU8,
    attention: AtomicU8,
    reserved: [u8; 2],
}

impl SpinLock {
    /// An unlocked lock.
    pub const fn new() -> Self {
        Self { locked: AtomicU8::new(0), attention: AtomicU8::new(0), reserved: [0; 2] }
    }

    fn address(&self) -> *mut c::Spinlock {
        self as *const Self as *mut c::Spinlock
    }

    /// Waits until the lock is this thread's.
    #[inline]
    pub fn lock(&self) {
        if self.locked.swap(1, Ordering::Acquire) != 0 {
            // SAFETY: the lock lives as long as this borrow, and has the layout of C's.
            unsafe { c::cpuslab_spin_lock_slow(self.address()) }
        }
    }

    /// Takes the lock if that needs no waiting.
    #[inline]
    pub fn try_lock(&self) -> bool {
        self.locked.swap(1, Ordering::Acquire) == 0
    }

    /// Gives the lock to whoever comes first.
    ///
    /// # Safety
    /// The caller holds it.
    #[inline]
    pub unsafe fn unlock(&self) {
        self.locked.store(0, Ordering::Release);
        // In this order for the waiter, which sets its mark and then looks (src/lock/spinlock.c).
        compiler_fence(Ordering::SeqCst);
        if self.attention.load(Ordering::Relaxed) != 0 {
            c::cpuslab_spin_unlock_slow(self.address())
        }
    }

    /// Whether somebody holds it.
    pub fn is_locked(&self) -> bool {
        self.locked.load(Ordering::Relaxed) != 0
    }
}

#[cfg(feature = "lock_api")]
mod api {
    use super::{ByteLock, SpinLock};

    macro_rules! raw_mutex {
        ($lock:ident) => {
            // SAFETY: one holder at a time, and whoever takes it sees what the one before has written.
            unsafe impl lock_api::RawMutex for $lock {
                #[allow(clippy::declare_interior_mutable_const)]
                const INIT: Self = Self::new();
                type GuardMarker = lock_api::GuardSend;
                #[inline]
                fn lock(&self) {
                    $lock::lock(self)
                }
                #[inline]
                fn try_lock(&self) -> bool {
                    $lock::try_lock(self)
                }
                #[inline]
                unsafe fn unlock(&self) {
                    $lock::unlock(self)
                }
                #[inline]
                fn is_locked(&self) -> bool {
                    $lock::is_locked(self)
                }
            }
        };
    }
    raw_mutex!(ByteLock);
    raw_mutex!(SpinLock);

    /// A value behind a lock of one byte.
    ///
    /// ```
    /// static TOTAL: cpuslab::ByteMutex<u64> = cpuslab::ByteMutex::new(0);
    /// std::thread::scope(|scope| {
    ///     for _ in 0..4 {
    ///         scope.spawn(|| (0..1000).for_each(|_| *TOTAL.lock() += 1));
    ///     }
    /// });
    /// assert_eq!(*TOTAL.lock(), 4000);
    /// ```
    pub type ByteMutex<T> = lock_api::Mutex<ByteLock, T>;
    /// A value behind a spinlock.
    pub type SpinMutex<T> = lock_api::Mutex<SpinLock, T>;
}
#[cfg(feature = "lock_api")]
pub use api::{ByteMutex, SpinMutex};
