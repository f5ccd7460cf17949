//! An event file of communication management that cannot be opened. Its own program, because the
//! limit of descriptors is the process's.
mod support;

use std::os::fd::{AsRawFd, RawFd};

use support::limit_descriptors;
use urxe_device::CmFile;

/// The two lowest numbers of descriptors that are free.
fn lowest_free() -> [RawFd; 2] {
    let (reader, writer) = std::io::pipe().unwrap();
    [reader.as_raw_fd(), writer.as_raw_fd()]
}

#[test]
fn an_event_file_that_cannot_be_opened_keeps_no_descriptor() {
    let free = lowest_free();
    // Enough for its pipe, and for nothing that it needs besides.
    let before = limit_descriptors(free[1] as libc::rlim_t + 1);
    let refused = CmFile::open(true, false);
    limit_descriptors(before);
    let code = refused.err().and_then(|error| error.raw_os_error());
    assert_eq!(code, Some(libc::EMFILE));
    assert_eq!(lowest_free(), free);
}
