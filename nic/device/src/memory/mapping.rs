//! Files that are mapped into the process, to be registered as memory.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use crate::process::odp;

/// A part of a file in the process's memory, shared with all other mappings of the file. Unmapped
/// when dropped.
#[derive(Debug)]
pub struct Mapping {
    /// Of the first page.
    start: usize,
    /// Of all pages.
    length: usize,
    /// Of the first byte that was asked for.
    address: u64,
}

impl Mapping {
    /// Maps `length` bytes from `offset` on, for reading, and for writing if so asked.
    ///
    /// # Errors
    /// What mmap(2) says: `EBADF`, `EACCES` (not open for this), `ENODEV` (nothing that can be
    /// mapped), `EINVAL` (no bytes, or beyond what a file can have).
    pub fn shared(file: &impl AsFd, offset: u64, length: u64, writes: bool) -> io::Result<Self> {
        let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
        let into_page = offset % odp::page_bytes();
        let all = length.checked_add(into_page).ok_or_else(invalid)?;
        let all = usize::try_from(all).map_err(|_| invalid())?;
        let from = libc::off_t::try_from(offset - into_page).map_err(|_| invalid())?;
        let rights = libc::PROT_READ | if writes { libc::PROT_WRITE } else { 0 };
        let descriptor = file.as_fd().as_raw_fd();
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                all,
                rights,
                libc::MAP_SHARED,
                descriptor,
                from,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = start.expose_provenance();
        Ok(Self {
            start,
            length: all,
            address: start as u64 + into_page,
        })
    }

    /// The process's address of the first byte that was asked for.
    #[must_use]
    pub const fn address(&self) -> u64 {
        self.address
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped so, and the region that had its address is gone.
        unsafe {
            libc::munmap(
                std::ptr::with_exposed_provenance_mut(self.start),
                self.length,
            )
        };
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_part_that_begins_within_a_page_is_where_it_says() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[b'.'; 5000]).unwrap();
        file.write_all(b"here").unwrap();
        let mapping = Mapping::shared(&file, 5000, 4, false).unwrap();
        // SAFETY: four bytes of the mapping.
        let bytes = unsafe {
            std::slice::from_raw_parts(
                std::ptr::with_exposed_provenance::<u8>(mapping.address() as usize),
                4,
            )
        };
        assert_eq!(bytes, b"here");
    }

    #[test]
    fn nothing_and_too_much_are_refused() {
        let file = tempfile::tempfile().unwrap();
        for (offset, length) in [(0, 0), (u64::MAX - 4096, 4096), (4097, u64::MAX)] {
            let error = Mapping::shared(&file, offset, length, true).unwrap_err();
            assert!(
                matches!(
                    error.raw_os_error(),
                    Some(libc::EINVAL | libc::EOVERFLOW | libc::ENOMEM)
                ),
                "{offset} {length}: {error}"
            );
        }
        let (reader, _writer) = io::pipe().unwrap();
        let error = Mapping::shared(&reader, 0, 4096, false).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    }
}
