//! Device memory: memory of the device that a program allocates, copies to and from, and registers.
//! A NIC of hardware has some on its chip; ours is the process's, apart from the program's own.

use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::memory::mapping::Mapping;
use crate::process::error::Error;

/// Bytes of device memory of an opened device.
pub(crate) const MAX_BYTES: u64 = 256 << 20;
/// The largest alignment that may be asked for: 2^12, a page.
const MAX_LOG_ALIGN: u32 = 12;

/// What an opened device has given out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pool(Arc<AtomicU64>);

/// A piece of device memory: a memory file of its own, so that it can be handed on by a descriptor.
/// Freed when dropped.
#[derive(Debug)]
pub struct DeviceMemory {
    file: OwnedFd,
    bytes: Mapping,
    length: u64,
    pool: Pool,
}

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
        // A mapping begins at a page, and so satisfies every alignment that may be asked for.
        match memory_file(length)
            .and_then(|file| Ok((Mapping::shared(&file, 0, length, true)?, file)))
        {
            Ok((bytes, file)) => Ok(DeviceMemory {
                file,
                bytes,
                length,
                pool: self.clone(),
            }),
            Err(error) => {
                self.0.fetch_sub(length, Ordering::Relaxed);
                log::info!("no device memory of {length} bytes: {error}");
                Err(Error::Exhausted("device memory"))
            }
        }
    }
}

/// A file of `length` zeros in memory.
fn memory_file(length: u64) -> std::io::Result<OwnedFd> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is a string.
    let fd = unsafe { libc::memfd_create(c"urxe-device-memory".as_ptr(), flags) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: just opened, and nothing else knows it.
    let file = std::fs::File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    file.set_len(length)?;
    // A process that was handed the descriptor could else cut the file, and every copy from it
    // would end this one.
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: an open descriptor and plain integers.
    if unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, seals) } < 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(file.into())
}

impl DeviceMemory {
    /// The process's address of `length` bytes at `offset`, if they lie inside.
    #[must_use]
    pub fn address(&self, offset: u64, length: u64) -> Option<u64> {
        let end = offset.checked_add(length)?;
        (end <= self.length).then(|| self.bytes.address() + offset)
    }

    /// The memory file that it is, of a fixed length: a process that maps it has the bytes of the
    /// device memory.
    #[must_use]
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        self.pool.0.fetch_sub(self.length, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_cannot_be_cut_by_a_process_that_was_handed_it() {
        let memory = Pool::default().allocate(5000, 0).unwrap();
        let file = std::fs::File::from(memory.file().try_clone_to_owned().unwrap());
        for length in [0, 4096, 9000] {
            let refused = file.set_len(length).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(libc::EPERM), "{length}");
        }
    }

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
