//! A process that has no descriptors left. Its own program, because the limit is the process's.
mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use support::cm::File;
use support::limit_descriptors;
use support::streams::choose_iwarp;

/// Connections that could not be taken in, as the log tells.
static REFUSED: AtomicU32 = AtomicU32::new(0);

struct Counts;

impl log::Log for Counts {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        if record.args().to_string().contains("cannot be accepted") {
            REFUSED.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn flush(&self) {}
}

/// A socket that connects to a port of this host once it is asked to.
fn connect_later(to: SocketAddr) -> impl FnOnce() -> TcpStream {
    // SAFETY: plain integers; the descriptor is ours.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    assert!(fd >= 0);
    let address = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: to.port().to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from_ne_bytes([127, 0, 0, 1]),
        },
        sin_zero: [0; 8],
    };
    move || {
        let len = size_of_val(&address) as libc::socklen_t;
        // SAFETY: an address of that length, and a descriptor of our own.
        unsafe {
            assert_eq!(libc::connect(fd, (&raw const address).cast(), len), 0);
            OwnedFd::from_raw_fd(fd).into()
        }
    }
}

#[test]
fn connections_that_cannot_be_taken_in_are_asked_for_now_and_then() {
    choose_iwarp();
    log::set_logger(&Counts).unwrap();
    log::set_max_level(log::LevelFilter::Warn);
    let server = File::open();
    let (_, address) = server.listening();
    let connect = connect_later(address);

    let before = limit_descriptors(3);
    let mut stranger = connect();
    let refused = || REFUSED.load(Ordering::Relaxed);
    while refused() == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let (first, start) = (refused(), Instant::now());
    std::thread::sleep(Duration::from_millis(300));
    let (again, ms) = (refused() - first, start.elapsed().as_millis());
    limit_descriptors(before);
    assert!(
        u128::from(again) <= 2 + ms / 50,
        "asked {again} times in {ms} ms"
    );

    // It is taken in, and told that it makes no sense.
    stranger.write_all(&[b'x'; 100]).unwrap();
    let limit = Some(Duration::from_secs(20));
    stranger.set_read_timeout(limit).unwrap();
    let answer = stranger.read(&mut [0; 10]).map_err(|error| error.kind());
    assert!(
        matches!(answer, Ok(0) | Err(std::io::ErrorKind::ConnectionReset)),
        "{answer:?}"
    );
}
