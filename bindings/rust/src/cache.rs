//! Typed caches: objects of one type, each CPU with a stock of its own.
use core::ffi::c_void;
use core::fmt;
use core::marker::PhantomData;
use core::mem::{align_of, forget, needs_drop, size_of};
use core::ops::{Deref, DerefMut};
use core::ptr::{self, null_mut, NonNull};
use cpuslab_sys as c;

/// Objects that one call of the library moves.
const BATCH: usize = 64;

struct RawCache(NonNull<c::Cache>);

// SAFETY: the library's functions may be called for one cache by several threads at once.
unsafe impl Send for RawCache {}
unsafe impl Sync for RawCache {}

impl RawCache {
    fn new(name: &str, size: usize, align: usize, constructor: Option<unsafe extern "C" fn(*mut c_void)>) -> Option<Self> {
        let mut text = [0u8; 256];
        if name.len() >= text.len() || name.bytes().any(|byte| byte == 0) {
            return None;
        }
        text[..name.len()].copy_from_slice(name.as_bytes());
        let arguments = c::CacheArgs {
            name: text.as_ptr().cast(),
            size: size.max(1),
            align: align.max(8),
            constructor,
            engine: 0,
            flags: 0,
            magazine_capacity: 0,
            free_pointer_offset: 0,
            use_free_pointer_offset: 0,
            reserved: [0; 4],
        };
        // SAFETY: the name, which is copied, ends with a null; what is out of range is an error.
        NonNull::new(unsafe { c::cpuslab_cache_create(&arguments) }).map(Self)
    }
}

impl Drop for RawCache {
    fn drop(&mut self) {
        // With objects that were forgotten it stays, as what they are made of must.
        // SAFETY: nobody else has it: objects borrow it.
        unsafe { c::cpuslab_cache_destroy(self.0.as_ptr()) };
    }
}

/// A cache of objects of one type (`kmem_cache`). It is destroyed with the last reference to it; objects borrow it.
///
/// ```
/// struct Packet { length: usize, bytes: [u8; 1500] }
///
/// let cache = cpuslab::KmemCache::new("packets").expect("memory");
/// let mut packet = cache.alloc(Packet { length: 0, bytes: [0; 1500] }).ok().expect("memory");
/// packet.bytes[0] = 7;
/// packet.length = 1;
/// assert_eq!(packet.bytes[packet.length - 1], 7);
/// drop(packet); // back into the cache
/// ```
pub struct KmemCache<T> {
    raw: RawCache,
    of: PhantomData<fn() -> T>,
}

impl<T> KmemCache<T> {
    /// A new cache; `name` is for reports. `None` if memory is short, the name is empty or longer than 255 bytes, or
    /// an object is larger than 4 MiB.
    pub fn new(name: &str) -> Option<Self> {
        Some(Self { raw: RawCache::new(name, size_of::<T>(), align_of::<T>(), None)?, of: PhantomData })
    }

    /// Moves a value into an object of the cache. Gives it back if memory is short.
    #[inline]
    pub fn alloc(&self, value: T) -> Result<CacheBox<'_, T>, T> {
        // SAFETY: a fresh object, of the type's size and alignment.
        match NonNull::new(unsafe { c::cpuslab_cache_alloc(self.raw.0.as_ptr()) }.cast::<T>()) {
            Some(object) => {
                unsafe { object.as_ptr().write(value) };
                Ok(CacheBox { object, cache: self })
            }
            None => Err(value),
        }
    }

    /// Fills as many of `places` as memory allows, with one call of the library for 64 of them; `make` gets each
    /// one's index. What was in them is dropped. Returns how many are filled, which come first.
    ///
    /// ```
    /// let cache = cpuslab::KmemCache::<u64>::new("numbers").unwrap();
    /// let mut numbers: Vec<_> = (0..1000).map(|_| None).collect();
    /// assert_eq!(cache.alloc_bulk(&mut numbers, |index| index as u64), 1000);
    /// assert_eq!(numbers.iter().flatten().map(|number| **number).sum::<u64>(), 499_500);
    /// cache.free_bulk(&mut numbers);
    /// assert!(numbers.iter().all(Option::is_none));
    /// ```
    pub fn alloc_bulk<'c>(&'c self, places: &mut [Option<CacheBox<'c, T>>], mut make: impl FnMut(usize) -> T) -> usize {
        let mut filled = 0;
        for batch in places.chunks_mut(BATCH) {
            let mut stock = Stock { cache: &self.raw, objects: [null_mut(); BATCH], next: 0, count: 0 };
            // SAFETY: there is room for a batch.
            stock.count =
                unsafe { c::cpuslab_cache_alloc_bulk(self.raw.0.as_ptr(), batch.len(), stock.objects.as_mut_ptr()) };
            while stock.next < stock.count {
                let value = make(filled); // where it panics, the stock goes back
                let object = stock.objects[stock.next].cast::<T>();
                // SAFETY: a fresh object, of the type's size and alignment.
                let object = unsafe {
                    object.write(value);
                    NonNull::new_unchecked(object)
                };
                batch[stock.next] = Some(CacheBox { object, cache: self });
                stock.next += 1;
                filled += 1;
            }
            if stock.count < batch.len() {
                break;
            }
        }
        filled
    }

    /// Drops the objects in `places`, those of this cache with one call of the library for 64 of them.
    pub fn free_bulk(&self, places: &mut [Option<CacheBox<'_, T>>]) {
        for batch in places.chunks_mut(BATCH) {
            let mut stock = Stock { cache: &self.raw, objects: [null_mut(); BATCH], next: 0, count: 0 };
            for object in batch.iter_mut().filter_map(Option::take) {
                if !ptr::eq(object.cache, self) {
                    continue; // another's, which drops it
                }
                stock.objects[stock.count] = object.object.as_ptr().cast();
                stock.count += 1;
                // SAFETY: it is this function's, and is not dropped again.
                unsafe {
                    let value = object.object.as_ptr();
                    forget(object);
                    value.drop_in_place();
                }
            }
        }
    }

    /// Gives memory back that no object uses.
    pub fn shrink(&self) {
        // SAFETY: the cache is there.
        unsafe { c::cpuslab_cache_shrink(self.raw.0.as_ptr()) };
    }
}

impl<T> fmt::Debug for KmemCache<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("KmemCache").field("of", &core::any::type_name::<T>()).finish()
    }
}

/// Objects without a value, `next` to `count`: they go back into the cache with it.
struct Stock<'c> {
    cache: &'c RawCache,
    objects: [*mut c_void; BATCH],
    next: usize,
    count: usize,
}

impl Drop for Stock<'_> {
    fn drop(&mut self) {
        let rest = &self.objects[self.next..self.count];
        // SAFETY: they are of this cache, and nobody else has them.
        unsafe { c::cpuslab_cache_free_bulk(self.cache.0.as_ptr(), rest.len(), rest.as_ptr()) };
    }
}

/// An object of a [`KmemCache`], which drops its value and gets it back.
pub struct CacheBox<'c, T> {
    object: NonNull<T>,
    cache: &'c KmemCache<T>,
}

// SAFETY: it owns its value, as Box does; the cache may be used on any thread.
unsafe impl<T: Send> Send for CacheBox<'_, T> {}
unsafe impl<T: Sync> Sync for CacheBox<'_, T> {}

impl<T> CacheBox<'_, T> {
    /// The value; its object goes back.
    pub fn into_inner(self) -> T {
        // SAFETY: the value is moved out, and only the object is freed.
        unsafe {
            let value = self.object.as_ptr().read();
            c::cpuslab_cache_free(self.cache.raw.0.as_ptr(), self.object.as_ptr().cast());
            forget(self);
            value
        }
    }
}

impl<T> Drop for CacheBox<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // An object whose value panics in its drop is not used again.
        // SAFETY: it is this object's only owner.
        unsafe {
            self.object.as_ptr().drop_in_place();
            c::cpuslab_cache_free(self.cache.raw.0.as_ptr(), self.object.as_ptr().cast());
        }
    }
}

impl<T> Deref for CacheBox<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the value is there as long as this.
        unsafe { self.object.as_ref() }
    }
}

impl<T> DerefMut for CacheBox<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and this is borrowed for writing.
        unsafe { self.object.as_mut() }
    }
}

impl<T: fmt::Debug> fmt::Debug for CacheBox<'_, T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(formatter)
    }
}

/// A cache with a constructor, as the kernel has it: `T::default()` is made when memory becomes objects, not at each
/// allocation, and whoever gives an object back leaves it as the next one may have it.
///
/// ```
/// #[derive(Default)]
/// struct Session { requests: u64, buffer: Option<std::num::NonZeroU64> }
///
/// let cache = cpuslab::ConstructedCache::<Session>::new("sessions").unwrap();
/// let mut session = cache.alloc().unwrap();
/// session.requests += 1;
/// session.requests = 0; // as it was made
/// ```
///
/// The type must have nothing to drop, since objects are not destroyed when their memory goes back:
///
/// ```should_panic
/// cpuslab::ConstructedCache::<String>::new("strings");
/// ```
pub struct ConstructedCache<T> {
    raw: RawCache,
    of: PhantomData<fn() -> T>,
}

unsafe extern "C" fn construct<T: Default>(object: *mut c_void) {
    // A panic must not leave it through C: it ends the process.
    object.cast::<T>().write(T::default())
}

impl<T: Default + Send> ConstructedCache<T> {
    /// A new cache; `None` as with [`KmemCache::new`].
    ///
    /// # Panics
    /// If the type has something to drop.
    pub fn new(name: &str) -> Option<Self> {
        assert!(!needs_drop::<T>(), "objects of a cache with a constructor are not dropped");
        Some(Self { raw: RawCache::new(name, size_of::<T>(), align_of::<T>(), Some(construct::<T>))?, of: PhantomData })
    }

    /// An object as its constructor, or its last owner, left it.
    #[inline]
    pub fn alloc(&self) -> Option<Constructed<'_, T>> {
        // SAFETY: the library constructs what has not been an object before.
        let object = NonNull::new(unsafe { c::cpuslab_cache_alloc(self.raw.0.as_ptr()) }.cast::<T>())?;
        Some(Constructed { object, cache: self })
    }
}

/// An object of a [`ConstructedCache`], which gets it back as it is.
pub struct Constructed<'c, T> {
    object: NonNull<T>,
    cache: &'c ConstructedCache<T>,
}

// SAFETY: as CacheBox.  What one thread leaves in an object another may get.
unsafe impl<T: Send> Send for Constructed<'_, T> {}
unsafe impl<T: Sync> Sync for Constructed<'_, T> {}

impl<T> Drop for Constructed<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: it is this object's only owner.
        unsafe { c::cpuslab_cache_free(self.cache.raw.0.as_ptr(), self.object.as_ptr().cast()) }
    }
}

impl<T> Deref for Constructed<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: a value from its construction on.
        unsafe { self.object.as_ref() }
    }
}

impl<T> DerefMut for Constructed<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and this is borrowed for writing.
        unsafe { self.object.as_mut() }
    }
}
