//! The functions of cpuslab as its headers declare them: `<cpuslab/cpuslab.h>`, `cache.h`, `lock.h`, `profile.h`, and malloc's.
//! Their contracts are in those headers, which the crate carries in `c/include`.
#![no_std]
#![allow(missing_docs)]

/// As C has them where this library runs.
use core::ffi::{c_char, c_int, c_long, c_uint, c_void};

/// `struct cpuslab_cache`.
#[repr(C)]
pub struct Cache {
    _private: [u8; 0],
}

/// `struct cpuslab_cache_args`.
#[repr(C)]
pub struct CacheArgs {
    pub name: *const c_char,
    pub size: usize,
    pub align: usize,
    pub constructor: Option<unsafe extern "C" fn(object: *mut c_void)>,
    pub engine: c_int,
    pub flags: c_uint,
    pub magazine_capacity: c_uint,
    pub free_pointer_offset: c_uint,
    pub use_free_pointer_offset: c_int,
    pub reserved: [u64; 4],
}

/// `struct cpuslab_counters`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub alloc_misses: u64,
    pub free_misses: u64,
    pub refills: u64,
    pub drains: u64,
    pub slabs_created: u64,
    pub slabs_freed: u64,
    pub section_aborts: u64,
    pub fences: u64,
    pub purged_bytes: u64,
    pub lock_acquires: u64,
}

/// `struct cpuslab_spinlock`.
#[repr(C, align(4))]
pub struct Spinlock {
    pub locked: u8,
    pub attention: u8,
    pub reserved: u16,
}

extern "C" {
    pub fn malloc(size: usize) -> *mut c_void;
    pub fn calloc(count: usize, size: usize) -> *mut c_void;
    pub fn realloc(pointer: *mut c_void, size: usize) -> *mut c_void;
    pub fn aligned_alloc(alignment: usize, size: usize) -> *mut c_void;
    pub fn free(pointer: *mut c_void);

    pub fn cpuslab_version() -> *const c_char;
    pub fn cpuslab_vcpu_mode() -> c_int;
    pub fn cpuslab_read_counters(counters: *mut Counters);
    pub fn cpuslab_slabinfo(file: c_int) -> c_int;
    pub fn cpuslab_stats_json(file: c_int) -> c_int;
    pub fn cpuslab_object_of(address: *const c_void) -> *mut c_void;
    pub fn cpuslab_validate(name: *const c_char) -> c_long;

    pub fn cpuslab_cache_create(arguments: *const CacheArgs) -> *mut Cache;
    pub fn cpuslab_cache_destroy(cache: *mut Cache) -> c_int;
    pub fn cpuslab_cache_alloc(cache: *mut Cache) -> *mut c_void;
    pub fn cpuslab_cache_free(cache: *mut Cache, object: *mut c_void);
    pub fn cpuslab_cache_alloc_bulk(cache: *mut Cache, count: usize, objects: *mut *mut c_void) -> usize;
    pub fn cpuslab_cache_free_bulk(cache: *mut Cache, count: usize, objects: *const *mut c_void);
    pub fn cpuslab_cache_shrink(cache: *mut Cache) -> c_int;

    pub fn cpuslab_spin_lock_slow(lock: *mut Spinlock);
    pub fn cpuslab_spin_unlock_slow(lock: *mut Spinlock);
    pub fn cpuslab_pagelock_lock_slow(lock: *mut u8);
    pub fn cpuslab_pagelock_trylock_slow(lock: *mut u8) -> bool;
    pub fn cpuslab_pagelock_wake_unlocked(address: *const u8);

    pub fn cpuslab_profile_start(interval: usize) -> c_int;
    pub fn cpuslab_profile_stop();
    pub fn cpuslab_profile_write(file: c_int, format: c_int) -> c_int;
}
