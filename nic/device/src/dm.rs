//! Device memory: memory of the device that a program allocates, copies to and from, and registers. A
//! NIC of hardware has some on its chip; ours is the process's, apart from the program's own.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Error;

/// Bytes of device memory of an opened device.
pub(crate) const MAX_BYTES: u64 = 256 << 20;
/// The largest alignment that may be asked for: 2^12, a page.
const MAX_LOG_ALIGN: u32 = 12;

/// What an opened device has given out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pool(Arc<AtomicU64>);

/// A piece of device memory. Freed when dropped.
#[derive(Debug)]
pub struct DeviceMemory {
    start: NonNull<u8>,
    layout: Layout,
    length: u64,
    pool: Pool,
}

// SAFETY: memory that peers and threads read and write at any time, as they do with a region: there are
// no references into it, only copies, and what concurrent ones see is the program's affair.
unsafe impl Send for DeviceMemory {}
// SAFETY: as above.
unsafe impl Sync for DeviceMemory {}

impl Pool {
    pub(crate) fn allocate(&self, length: u64, log_align: u32) -> Result<DeviceMemory, Error> {
        if length == 0 || log_align > MAX_LOG_ALIGN {
            return Err(Error::Invalid(format!(
                "{length} bytes of device memory, aligned to 2^{log_align}; at least 1 byte and at most 2^{MAX_LOG_ALIGN}"
            )));
        }
        let free = |used: u64| used.checked_add(length).filter(|all| *all <= MAX_BYTES);
        if self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, free)
            .is_err()
        {
            return Err(Error::Exhausted("device memory"));
        }
        let size = usize::try_from(length).unwrap_or(usize::MAX);
        let layout = Layout::from_size_align(size, 1 << log_align.max(3));
        // SAFETY: the size is not zero.
        let start = layout
            .ok()
            .and_then(|layout| Some((NonNull::new(unsafe { alloc_zeroed(layout) })?, layout)));
        let Some((start, layout)) = start else {
            self.0.fetch_sub(length, Ordering::Relaxed);
            return Err(Error::Exhausted("device memory"));
        };
        Ok(DeviceMemory {
            start,
            layout,
            length,
            pool: self.clone(),
        })
    }
}

impl DeviceMemory {
    /// The process's address of `length` bytes at `offset`, if they lie inside.
    #[must_use]
    pub fn address(&self, offset: u64, length: u64) -> Option<u64> {
        let end = offset.checked_add(length)?;
        (end <= self.length).then(|| self.start.as_ptr() as u64 + offset)
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        self.pool.0.fetch_sub(self.length, Ordering::Relaxed);
        // SAFETY: allocated with this layout, and nothing refers to it any more.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_bounded_and_given_back() {
        let pool = Pool::default();
        let memory = pool.allocate(100, 12).unwrap();
        let start = memory.address(0, 100).unwrap();
        assert_eq!(start % 4096, 0);
        assert_eq!(memory.address(90, 10), Some(start + 90));
        assert_eq!(memory.address(91, 10), None);
        assert_eq!(memory.address(u64::MAX, 2), None);
        assert!(pool.allocate(MAX_BYTES - 99, 0).is_err());
        drop(memory);
        assert!(pool.allocate(MAX_BYTES, 0).is_ok());
        assert!(pool.allocate(0, 0).is_err());
        assert!(pool.allocate(8, 13).is_err());
    }
}
