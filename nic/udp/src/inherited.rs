//! What a child of fork(2) lets go of at once: descriptors and memory in which its parent's packets
//! arrive, and names and ports that are its parent's. They are known here without locks, as a
//! thread may fork in a signal handler that has interrupted any of this library, and the child may
//! go on with what was interrupted.

use std::ops::Deref;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Descriptors below this number are known: as many as Linux lets a process have by default.
const DESCRIPTORS: usize = 1 << 20;
const BITS: usize = u64::BITS as usize;

/// Which descriptors are private, a bit each. Pages of it that are not touched cost nothing.
static PRIVATE: [AtomicU64; DESCRIPTORS / BITS] = [const { AtomicU64::new(0) }; DESCRIPTORS / BITS];
/// As many words of it have ever been used.
static USED: AtomicUsize = AtomicUsize::new(0);

/// Mappings that are known, at most: two for each address of a device that has frames.
const MAPPINGS: usize = 1 << 12;
/// Their first bytes (0: none) and lengths.
static MAPPED: [(AtomicUsize, AtomicUsize); MAPPINGS] =
    [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; MAPPINGS];

/// As many of them have ever been used.
static MAPPED_USED: AtomicUsize = AtomicUsize::new(0);

fn place(fd: RawFd) -> Option<(usize, u64)> {
    let index = usize::try_from(fd).ok().filter(|at| *at < DESCRIPTORS)?;
    Some((index / BITS, 1 << (index % BITS)))
}

/// A descriptor that is this process's own. In the child of a fork its number stays taken, by an
/// empty file.
#[derive(Debug)]
pub struct Private<T: AsRawFd>(T);

impl<T: AsRawFd> From<T> for Private<T> {
    fn from(file: T) -> Self {
        if let Some((word, bit)) = place(file.as_raw_fd()) {
            USED.fetch_max(word + 1, Ordering::Relaxed);
            PRIVATE[word].fetch_or(bit, Ordering::Relaxed);
        }
        Self(file)
    }
}

impl<T: AsRawFd> Deref for Private<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: AsRawFd> Drop for Private<T> {
    fn drop(&mut self) {
        // First: the number may be another file's once it is closed.
        if let Some((word, bit)) = place(self.0.as_raw_fd()) {
            PRIVATE[word].fetch_and(!bit, Ordering::Relaxed);
        }
    }
}

/// While it lives, a mapping is this process's own. In the child of a fork there is memory in its
/// place in which nothing arrives.
#[derive(Debug)]
pub(crate) struct PrivateMapping {
    at: usize,
}

impl PrivateMapping {
    /// None if there are too many.
    pub(crate) fn new(start: usize, bytes: usize) -> Option<Self> {
        let take = |(begin, _): &(AtomicUsize, AtomicUsize)| {
            // Without a length it is nothing yet.
            begin
                .compare_exchange(0, start, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        };
        let at = MAPPED.iter().position(take)?;
        MAPPED_USED.fetch_max(at + 1, Ordering::Relaxed);
        MAPPED[at].1.store(bytes, Ordering::Release);
        Some(Self { at })
    }
}

impl Drop for PrivateMapping {
    fn drop(&mut self) {
        let (start, bytes) = &MAPPED[self.at];
        bytes.store(0, Ordering::Release);
        start.store(0, Ordering::Release);
    }
}

/// In the child of a fork, before it does anything else: lets go of what is its parent's. Takes no
/// lock, and calls nothing that may not be called in a signal handler.
pub fn abandon_inherited() {
    abandon_descriptors();
    for (start, bytes) in MAPPED.iter().take(MAPPED_USED.load(Ordering::Relaxed)) {
        let (start, bytes) = (start.load(Ordering::Acquire), bytes.load(Ordering::Acquire));
        if start == 0 || bytes == 0 {
            continue;
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: it replaces this mapping alone. If there is no memory it stays, and the child
        // would take packets of its parent, as from any other descriptor.
        unsafe { libc::mmap(start as *mut libc::c_void, bytes, protection, flags, -1, 0) };
    }
}

fn abandon_descriptors() {
    let words = || PRIVATE.iter().take(USED.load(Ordering::Relaxed));
    if words().all(|word| word.load(Ordering::Relaxed) == 0) {
        return;
    }
    // An empty file, which is always readable, so that a wait that goes on in the child ends. Not
    // one with a path, which a process may not see. And not by libc's functions, which may be
    // interposed. SAFETY: a name that is a string, and plain integers.
    let nothing = unsafe {
        let name = c"urxe-parents".as_ptr();
        libc::syscall(libc::SYS_memfd_create, name, libc::MFD_CLOEXEC)
    };
    for (index, word) in words().enumerate() {
        let mut left = word.load(Ordering::Relaxed);
        while left != 0 {
            let fd = index * BITS + left.trailing_zeros() as usize;
            left &= left - 1;
            // SAFETY: plain integers. A number that cannot be given to something else is closed.
            unsafe {
                if nothing < 0 || libc::syscall(libc::SYS_dup3, nothing, fd, libc::O_CLOEXEC) < 0 {
                    libc::syscall(libc::SYS_close, fd);
                }
            }
        }
    }
    if nothing >= 0 {
        // SAFETY: just opened, and no other thread knows it.
        unsafe { libc::syscall(libc::SYS_close, nothing) };
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::FromRawFd;

    use super::*;

    /// What a child of this process, which exits with it, finds.
    fn in_child(what: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child calls nothing but what may be called after a fork of a program with
        // threads.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                abandon_inherited();
                libc::_exit(i32::from(!what()));
            }
            let mut status = -1;
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            status == 0
        }
    }

    #[test]
    fn a_child_has_no_socket_of_its_parents_and_no_memory() {
        const BYTES: usize = 8192;
        let socket = Private::from(UdpSocket::bind("127.0.0.1:0").unwrap());
        let other = UdpSocket::bind("127.0.0.1:0").unwrap();
        // SAFETY: a new mapping.
        let memory = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
            libc::mmap(std::ptr::null_mut(), BYTES, protection, flags, -1, 0)
        };
        assert_ne!(memory, libc::MAP_FAILED);
        let byte = memory.cast::<u8>();
        // SAFETY: inside the mapping.
        unsafe { byte.write(7) };
        let mapping = PrivateMapping::new(memory as usize, BYTES).unwrap();
        let has_name = |socket: &UdpSocket| socket.local_addr().is_ok();
        assert!(in_child(|| {
            // SAFETY: inside the mapping, or what took its place.
            let is_new = unsafe {
                let is_new = byte.read() == 0;
                byte.write(9);
                is_new
            };
            is_new && !has_name(&socket) && has_name(&other)
        }));
        // SAFETY: inside the mapping.
        assert_eq!(unsafe { byte.read() }, 7);
        assert!(has_name(&socket));
        drop(mapping);
        // SAFETY: as above.
        assert!(in_child(|| unsafe { byte.read() } == 7));
        // SAFETY: mapped above, and used no more.
        unsafe { libc::munmap(memory, BYTES) };
    }

    #[test]
    fn a_descriptor_that_was_closed_is_private_no_more() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        // A number that no other test comes to meanwhile.
        // SAFETY: plain integers; what comes back is ours.
        let high = unsafe {
            let fd = libc::fcntl(socket.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 700);
            assert!(fd >= 700);
            UdpSocket::from_raw_fd(fd)
        };
        let (word, bit) = place(high.as_raw_fd()).unwrap();
        let is_private = || PRIVATE[word].load(Ordering::Relaxed) & bit != 0;
        let private = Private::from(high);
        assert!(is_private());
        drop(private);
        assert!(!is_private());
        assert_eq!(place(-1), None);
    }
}
