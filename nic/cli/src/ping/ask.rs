//! The questions of `urxe ping`: to urxe, to the connection manager of any RoCEv2 stack, to the
//! host.
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use urxe_cm::{Mad, Message, ServiceId, SidrReq};
use urxe_device::{PingAnswer, PingQuestion, Pkey, gsi_datagram, gsi_payload};
use urxe_udp::{
    Destination, Framing, Interest, Options, Piece, RecvBuffer, SendError, Socket, Transmit, Waiter,
};

/// What became of a question.
pub(super) enum Outcome<T> {
    /// The answer and the round trip.
    Answer(T, Duration),
    /// Why not, in words.
    Refused(String),
    Silence,
}

impl<T> Outcome<T> {
    /// The same with another answer.
    pub(super) fn map<U>(self, answer: impl FnOnce(T) -> U) -> Outcome<U> {
        match self {
            Self::Answer(is, time) => Outcome::Answer(answer(is), time),
            Self::Refused(reason) => Outcome::Refused(reason),
            Self::Silence => Outcome::Silence,
        }
    }
}

/// Asks questions, one after the other.
pub(super) struct Asker {
    socket: Socket,
    waiter: Waiter,
    buffer: RecvBuffer,
    target: SocketAddr,
    timeout: Duration,
    transaction: u64,
}

impl Asker {
    /// Asks from `source`; with port 0, the kernel chooses one. `None` if the port is taken.
    pub(super) fn new(
        source: SocketAddr,
        target: SocketAddr,
        timeout: Duration,
    ) -> Result<Option<Self>> {
        let options = Options {
            receive_buffer_bytes: 1 << 16,
            send_buffer_bytes: 1 << 16,
            gro: false,
            ..Options::default()
        };
        let socket = match Socket::bind(source, &options) {
            Ok(socket) => socket,
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Ok(None),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot make a socket at {source}"));
            }
        };
        report_errors(&socket, target.is_ipv6()).context("cannot ask for ICMP errors")?;
        let waiter = Waiter::new()?;
        waiter.add(&socket, 0, Interest::READ)?;
        Ok(Some(Self {
            socket,
            waiter,
            buffer: RecvBuffer::new(),
            target,
            timeout,
            // Answers to an earlier run at the same port are not ours.
            transaction: u64::from(std::process::id()) << 32,
        }))
    }

    /// Asks a urxe process, with a UDP payload of this length.
    pub(super) fn ask_urxe(&mut self, length_bytes: usize) -> Result<Outcome<PingAnswer>> {
        self.transaction += 1;
        let transaction = self.transaction;
        let question = PingQuestion {
            transaction,
            length_bytes,
        };
        let datagram = question
            .datagram(self.socket.local_address(), self.target)
            .context("no question of this length between these addresses")?;
        self.exchange(&datagram, |bytes| {
            PingAnswer::parse(bytes).filter(|answer| answer.transaction == transaction)
        })
    }

    /// Asks the connection manager for a service that no program has. A stack with a connection
    /// manager answers that it is not supported (IBTA vol 1, 12.11), to port 4791 of the host that
    /// asked.
    pub(super) fn ask_connection_manager(&mut self) -> Result<Outcome<()>> {
        /// Service IDs of which the first byte is 2 are assigned by the local operating system
        /// (IBTA annex A3.2.3).
        const NOBODYS: ServiceId = ServiceId(0x02_75_72_78_65_00_00_00);
        self.transaction += 1;
        let request_id = (self.transaction ^ self.transaction >> 32) as u32;
        let mad = Mad {
            transaction: self.transaction,
            message: Message::from(SidrReq {
                request_id,
                pkey: Pkey::DEFAULT.0,
                service_id: NOBODYS,
                private_data: [0; SidrReq::PRIVATE_LEN],
            }),
        };
        let source = self.socket.local_address();
        let datagram = gsi_datagram(&mad.emit(), source, self.target)
            .context("no question between these addresses")?;
        self.exchange(&datagram, |bytes| {
            match Mad::parse(gsi_payload(bytes)?).ok()?.message {
                Message::SidrRep(reply) => (reply.request_id == request_id).then_some(()),
                _ => None,
            }
        })
    }

    /// Sends a datagram, and waits for the one that `parse` takes for the answer.
    fn exchange<T>(
        &mut self,
        datagram: &[u8],
        parse: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<Outcome<T>> {
        let iov = [Piece::new(datagram)];
        let transmit = Transmit {
            destination: &Destination::new(self.target),
            segment_size: None,
            tos: 0,
            framing: Framing::Never,
            whole: None,
            iov: &iov,
        };
        let asked = Instant::now();
        match self.socket.send(&transmit) {
            Ok(sent) => {
                if let Some(errno) = sent.lost {
                    return Ok(Outcome::Refused(in_words(errno)));
                }
            }
            Err(SendError::TooBig) => return Ok(Outcome::Refused(in_words(libc::EMSGSIZE))),
            Err(error) => bail!("cannot send to {}: {error}", self.target.ip()),
        }
        loop {
            match self.socket.receive(&mut self.buffer) {
                Ok(Some(meta)) => {
                    let elapsed = asked.elapsed();
                    let is_from_there = meta.source.ip() == self.target.ip();
                    let answer = parse(&self.buffer.bytes()[..meta.len]);
                    if let Some(answer) = answer.filter(|_| is_from_there) {
                        return Ok(Outcome::Answer(answer, elapsed));
                    }
                    continue;
                }
                Ok(None) => {}
                Err(error) => {
                    let errno = error.raw_os_error().unwrap_or(libc::EIO);
                    return Ok(Outcome::Refused(in_words(errno)));
                }
            }
            let left = self.timeout.saturating_sub(asked.elapsed());
            if left.is_zero() {
                return Ok(Outcome::Silence);
            }
            let left_ns = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
            self.waiter.wait(Some(left_ns))?;
        }
    }
}

/// Lets ICMP errors come back as errors of the socket, though it is not connected (ip(7)
/// `IP_RECVERR`): a connected one would number its datagrams, and their ICRC has to know the
/// number.
fn report_errors(socket: &Socket, ipv6: bool) -> io::Result<()> {
    let (level, name) = if ipv6 {
        (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
    } else {
        (libc::IPPROTO_IP, libc::IP_RECVERR)
    };
    let on: libc::c_int = 1;
    // SAFETY: an int and its length.
    let status = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    };
    if status == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn in_words(errno: i32) -> String {
    match errno {
        libc::ECONNREFUSED => "nothing listens on this UDP port (ICMP port unreachable)".to_owned(),
        libc::EHOSTUNREACH => {
            "the host does not answer on its network, or a router cannot reach it".to_owned()
        }
        libc::ENETUNREACH => "there is no route to its network".to_owned(),
        libc::EMSGSIZE => "the packet does not fit the path".to_owned(),
        libc::EPERM | libc::EACCES => "a firewall forbids it".to_owned(),
        other => io::Error::from_raw_os_error(other).to_string(),
    }
}

/// Whether the host answers an ICMP echo; `None` where asking is not permitted (icmp(7),
/// `ping_group_range`).
pub(super) fn icmp_echo(target: SocketAddr, timeout: Duration) -> Option<bool> {
    let (family, protocol, echo_request) = if target.is_ipv4() {
        (libc::AF_INET, libc::IPPROTO_ICMP, 8)
    } else {
        (libc::AF_INET6, libc::IPPROTO_ICMPV6, 128)
    };
    // SAFETY: plain integers; a descriptor that is not negative is ours.
    let socket = unsafe {
        match libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, protocol) {
            -1 => return None,
            fd => OwnedFd::from_raw_fd(fd),
        }
    };
    // Sending and receiving are as for UDP; the kernel fills in identifier and checksum.
    let socket = UdpSocket::from(socket);
    socket.set_read_timeout(Some(timeout)).ok()?;
    socket.connect(target).ok()?;
    let asked = socket.send(&[echo_request, 0, 0, 0, 0, 0, 0, 1]);
    Some(asked.is_ok() && socket.recv(&mut [0; 64]).is_ok())
}
