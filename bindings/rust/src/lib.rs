//! cpuslab as the global allocator of a Rust program, and what else the library has: typed caches, locks, statistics, profiles.
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: cpuslab::Cpuslab = cpuslab::Cpuslab;
//! # let words = vec![String::from("a"); 10];
//! # assert_eq!(words.concat().len(), 10);
//! ```
//!
//! The C library's `malloc` is the same heap: memory may cross between Rust and C code in both directions. Whoever uses
//! a function of this crate has that `malloc` in the whole program.
//!
//! Features: `shared` links the installed `libcpuslab.so` in place of the sources that `cpuslab-sys` carries;
//! `allocator-api2` and `lock_api` implement those crates' traits. The crate is `no_std`.
#![no_std]
#![warn(missing_docs)]

#[cfg(test)]
extern crate std;

use core::alloc::{GlobalAlloc, Layout};
use core::ffi::CStr;
use cpuslab_sys as c;

mod cache;
mod lock;
pub mod profile;

pub use c::Counters;
pub use cache::{CacheBox, Constructed, ConstructedCache, KmemCache};
pub use lock::{ByteLock, SpinLock};
#[cfg(feature = "lock_api")]
pub use lock::{ByteMutex, SpinMutex};

/// What `malloc` promises for every size.
const MALLOC_ALIGNMENT: usize = 16;

/// The allocator.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cpuslab;

// SAFETY: the library keeps C's contract, which is GlobalAlloc's: blocks do not overlap, are as large and as
// aligned as asked for, belong to whoever holds them on any thread, and a failure is a null pointer.  It never
// unwinds.
unsafe impl GlobalAlloc for Cpuslab {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= MALLOC_ALIGNMENT {
            c::malloc(layout.size()).cast()
        } else {
            c::aligned_alloc(layout.align(), layout.size()).cast()
        }
    }

    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, _layout: Layout) {
        c::free(pointer.cast())
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= MALLOC_ALIGNMENT {
            // Pages that are fresh from the system are not written again.
            return c::calloc(1, layout.size()).cast();
        }
        let pointer = self.alloc(layout);
        if !pointer.is_null() {
            pointer.write_bytes(0, layout.size());
        }
        pointer
    }

    #[inline]
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if layout.align() <= MALLOC_ALIGNMENT {
            return c::realloc(pointer.cast(), new_size).cast();
        }
        // realloc() keeps the contents, not an alignment above its own.
        let moved = self.alloc(Layout::from_size_align_unchecked(new_size, layout.align()));
        if !moved.is_null() {
            moved.copy_from_nonoverlapping(pointer, layout.size().min(new_size));
            self.dealloc(pointer, layout);
        }
        moved
    }
}

#[cfg(feature = "allocator-api2")]
mod allocator {
    use super::{Cpuslab, GlobalAlloc, Layout};
    use allocator_api2::alloc::{AllocError, Allocator};
    use core::ptr::NonNull;

    // SAFETY: as GlobalAlloc, by which it allocates; a copy of the allocator is the same allocator.
    unsafe impl Allocator for Cpuslab {
        #[inline]
        fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
            let start = if layout.size() == 0 {
                layout.align() as *mut u8 // of nothing, as aligned as asked for
            } else {
                // SAFETY: the size is not zero.
                unsafe { self.alloc(layout) }
            };
            NonNull::new(core::ptr::slice_from_raw_parts_mut(start, layout.size())).ok_or(AllocError)
        }

        #[inline]
        unsafe fn deallocate(&self, pointer: NonNull<u8>, layout: Layout) {
            if layout.size() > 0 {
                self.dealloc(pointer.as_ptr(), layout)
            }
        }
    }
}

/// Who a thread is to the fast path; see `cpuslab.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VcpuMode {
    /// A private slot for each thread.
    ThreadSlot,
    /// The CPU number.
    CpuId,
    /// The kernel's per-process concurrency id.
    MmCid,
}

/// The mode in force in this process.
pub fn vcpu_mode() -> VcpuMode {
    // SAFETY: the function takes nothing and may be called at any time.
    match unsafe { c::cpuslab_vcpu_mode() } {
        2 => VcpuMode::MmCid,
        1 => VcpuMode::CpuId,
        _ => VcpuMode::ThreadSlot,
    }
}

/// The version of the library, as "major.minor.patch".
pub fn version() -> &'static str {
    // SAFETY: a constant string of the library, which is never unloaded.
    unsafe { CStr::from_ptr(c::cpuslab_version()) }.to_str().unwrap_or("")
}

/// What has happened in this process so far; see `struct cpuslab_counters`.
///
/// ```
/// let before = cpuslab::counters();
/// let blocks: Vec<_> = (0..10_000).map(|_| Box::new([0u64; 20])).collect();
/// # drop(blocks);
/// assert!(cpuslab::counters().alloc_misses >= before.alloc_misses);
/// ```
pub fn counters() -> Counters {
    let mut counters = Counters::default();
    // SAFETY: the library fills the structure.
    unsafe { c::cpuslab_read_counters(&mut counters) };
    counters
}

/// Writes the statistics of every cache and class to a file descriptor as JSON. False when it could not be written.
pub fn write_stats_json(file: i32) -> bool {
    // SAFETY: a number that is no open file is an error.
    unsafe { c::cpuslab_stats_json(file) == 0 }
}

/// Writes `/proc/slabinfo`'s table of this process to a file descriptor. False when it could not be written.
pub fn write_slabinfo(file: i32) -> bool {
    // SAFETY: as above.
    unsafe { c::cpuslab_slabinfo(file) == 0 }
}
