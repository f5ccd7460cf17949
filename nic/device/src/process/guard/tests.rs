use super::*;

const LEN: usize = 1 << 16;

/// Memory of which the second half is unmapped.
fn half_gone() -> u64 {
    let start = crate::support::apart::map(LEN, libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: half of a new mapping is unmapped again.
    assert_eq!(unsafe { libc::munmap(start.add(LEN / 2), LEN / 2) }, 0);
    start as u64
}

#[test]
fn what_is_there_is_copied_and_what_is_gone_is_a_fault() {
    install();
    let at = half_gone();
    let (data, mut out) = (vec![7; LEN], vec![0; LEN]);
    // SAFETY: memory of this test's own.
    unsafe {
        assert_eq!(place(at, &data[..LEN / 2]), Ok(()));
        assert_eq!(take(at, &mut out[..LEN / 2]), Ok(()));
        assert!(out[..LEN / 2] == data[..LEN / 2]);
        for len in [1, 7, 64, 1024, LEN / 2] {
            let near_end = at + (LEN / 2) as u64 - 1;
            assert_eq!(place(near_end, &data[..=len]), Err(AccessError::Fault));
            assert_eq!(take(near_end, &mut out[..=len]), Err(AccessError::Fault));
            assert_eq!(place(near_end, &data[..1]), Ok(()), "as good as before");
        }
    }
}

#[test]
fn memory_that_may_not_be_written_is_a_fault() {
    install();
    // SAFETY: a constant is never written: that is the point.
    unsafe {
        let constant = b"constant".as_ptr() as u64;
        assert_eq!(place(constant, b"other"), Err(AccessError::Fault));
        let mut out = [0; 8];
        assert_eq!(take(constant, &mut out), Ok(()));
        assert_eq!(&out, b"constant");
    }
}

#[test]
fn a_file_cut_short_is_a_fault() {
    install();
    let file = std::env::temp_dir().join(format!("urxe-guard-{}", std::process::id()));
    std::fs::write(&file, vec![1; LEN]).unwrap();
    let open = std::fs::File::options()
        .read(true)
        .write(true)
        .open(&file)
        .unwrap();
    std::fs::remove_file(&file).unwrap();
    // SAFETY: a new mapping of a file of this test's own.
    unsafe {
        use std::os::fd::AsRawFd;
        let start = libc::mmap(
            std::ptr::null_mut(),
            LEN,
            libc::PROT_READ,
            libc::MAP_SHARED,
            open.as_raw_fd(),
            0,
        );
        assert_ne!(start, libc::MAP_FAILED);
        let mut out = vec![0; LEN];
        assert_eq!(take(start as u64, &mut out), Ok(()));
        open.set_len(0).unwrap();
        assert_eq!(
            take(start as u64, &mut out),
            Err(AccessError::Fault),
            "SIGBUS"
        );
        libc::munmap(start, LEN);
    }
}

#[test]
fn threads_do_not_disturb_each_other() {
    install();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let at = half_gone();
                for round in 0..500 {
                    let mut out = [0; 4096];
                    let expected = if round % 2 == 0 {
                        Ok(())
                    } else {
                        Err(AccessError::Fault)
                    };
                    let from = at + (round % 2 * LEN / 2) as u64;
                    // SAFETY: memory of this test's own.
                    assert_eq!(unsafe { take(from, &mut out) }, expected);
                }
            });
        }
    });
}

fn protect(at: u64, rights: libc::c_int) {
    // SAFETY: pages of a test's own.
    let status = unsafe { libc::mprotect(at as *mut libc::c_void, LEN / 2, rights) };
    assert_eq!(status, 0);
}

#[test]
fn why_an_access_failed_is_known() {
    install();
    let at = half_gone();
    let gone = at + (LEN / 2) as u64;
    let fault = |at, is_protected| Some(Fault { at, is_protected });
    // SAFETY: memory of this test's own.
    unsafe {
        assert_eq!(place(gone, b"x"), Err(AccessError::Fault));
        assert_eq!(take_fault(), fault(gone, false));
        assert_eq!(take_fault(), None);
        protect(at, libc::PROT_READ);
        assert_eq!(place(at + 5, b"x"), Err(AccessError::Fault));
        assert_eq!(take_fault(), fault(at + 5, true));
        assert_eq!(take(at, &mut [0]), Ok(()));
        protect(at, libc::PROT_NONE);
        assert_eq!(take(at + 6, &mut [0]), Err(AccessError::Fault));
        assert_eq!(take_fault(), fault(at + 6, true));
    }
}

#[test]
fn a_thread_that_blocks_the_signals_is_not_killed() {
    install();
    let blocked = || {
        let at = half_gone() + (LEN / 2) as u64;
        for _ in 0..2 {
            // SAFETY: a set that is initialised, and memory of this test's own.
            unsafe {
                let mut all = std::mem::zeroed();
                libc::sigfillset(&raw mut all);
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
                // As the library that the program has loaded does.
                forget_mask();
                assert_eq!(place(at, b"x"), Err(AccessError::Fault));
            }
        }
    };
    std::thread::spawn(blocked).join().unwrap();
}
