//! An event file of communication management that cannot be opened. Its own program, because the
//! limit of descriptors is the process's.

use std::os::fd::{AsRawFd, RawFd};

use urxe_device::CmFile;

/// Lets the process have descriptors below this number alone; what it might before.
fn limit_descriptors(count: libc::rlim_t) -> libc::rlim_t {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: room for the limit, which lives until the calls return.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        let before = std::mem::replace(&mut limit.rlim_cur, count);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
        before
    }
}

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
