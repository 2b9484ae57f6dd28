//! cpuslab as the global allocator of a Rust program.
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: cpuslab::Cpuslab = cpuslab::Cpuslab;
//! ```
//!
//! The C library's `malloc` is the same heap: memory may cross between Rust and C code in both directions.
#![no_std]
#![warn(missing_docs)]

use core::alloc::{GlobalAlloc, Layout};
use core::{slice, str};

/// As C has them where this library runs: `core::ffi` names them only since Rust 1.64, and Debian 12 has 1.63.
mod c {
    use core::ffi::c_void;

    extern "C" {
        pub fn malloc(size: usize) -> *mut c_void;
        pub fn calloc(count: usize, size: usize) -> *mut c_void;
        pub fn realloc(pointer: *mut c_void, size: usize) -> *mut c_void;
        pub fn aligned_alloc(alignment: usize, size: usize) -> *mut c_void;
        pub fn free(pointer: *mut c_void);
        pub fn strlen(text: *const u8) -> usize;
        pub fn cpuslab_version() -> *const u8;
        pub fn cpuslab_vcpu_mode() -> i32;
    }
}

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
    let text = unsafe {
        let start = c::cpuslab_version();
        slice::from_raw_parts(start, c::strlen(start))
    };
    str::from_utf8(text).unwrap_or("")
}
