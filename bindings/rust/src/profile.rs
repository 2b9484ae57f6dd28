//! Heap profiles: which stacks allocated what is in use.
//!
//! ```no_run
//! use std::os::fd::AsRawFd;
//!
//! assert!(cpuslab::profile::start(512 * 1024));
//! let cache = vec![0u8; 100 << 20];
//! let file = std::fs::File::create("heap.pb")?;
//! cpuslab::profile::write(file.as_raw_fd(), cpuslab::profile::Format::Proto); // go tool pprof heap.pb
//! cpuslab::profile::stop();
//! # drop(cache);
//! # Ok::<(), std::io::Error>(())
//! ```
use cpuslab_sys as c;

/// How a profile is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// pprof's profile.proto.
    Proto,
    /// gperftools' text.
    Text,
}

/// Starts a profile with a mean of `interval` bytes between samples; 0 stands for 524288. False when memory is short.
pub fn start(interval: usize) -> bool {
    // SAFETY: may be called at any time, on any thread.
    unsafe { c::cpuslab_profile_start(interval) == 0 }
}

/// Ends the profile; what it recorded can still be written.
pub fn stop() {
    // SAFETY: as above.
    unsafe { c::cpuslab_profile_stop() }
}

/// Writes what the profile has recorded to a file descriptor. False when it could not be written.
pub fn write(file: i32, format: Format) -> bool {
    // SAFETY: a number that is no open file is an error.
    unsafe { c::cpuslab_profile_write(file, format as i32) == 0 }
}
