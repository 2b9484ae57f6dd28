// SPDX-License-Identifier: MIT
//! parking_lot's RawMutex behind C functions.  `pairs` holds the loop, so that lock and unlock are inlined into
//! it as they are into a Rust program.

use parking_lot::lock_api::RawMutex as _;
use parking_lot::RawMutex;

static ALONE: RawMutex = RawMutex::INIT;
static CONTENDED: RawMutex = RawMutex::INIT;

#[no_mangle]
pub extern "C" fn cpuslab_peer_pairs(pairs: u64) {
    for _ in 0..pairs {
        ALONE.lock();
        // SAFETY: locked by this thread in the line before.
        unsafe { ALONE.unlock() };
    }
}

#[no_mangle]
pub extern "C" fn cpuslab_peer_lock() {
    CONTENDED.lock();
}

/// # Safety
/// The calling thread holds the lock.
#[no_mangle]
pub unsafe extern "C" fn cpuslab_peer_unlock() {
    CONTENDED.unlock();
}
