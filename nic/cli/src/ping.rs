//! `urxe ping`: whether RoCEv2 gets through to an address, and what its path is like.
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6, ToSocketAddrs, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use urxe_device::{DeviceInfo, Mtu, PingAnswer, PingQuestion};
use urxe_udp::{
    Destination, Interest, Options, Piece, RecvBuffer, SendError, Socket, Transmit, Waiter,
    path_mtu_bytes,
};

/// Options of `urxe ping`.
#[derive(clap::Args)]
pub(crate) struct Ping {
    /// The IP address or name of the other host
    address: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The UDP port: 4791 is everybody's; further processes of one urxe host have the next ones
    #[arg(long, default_value_t = 4791)]
    port: u16,
    /// How many questions to ask
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    count: u32,
    /// How long to wait for each answer, milliseconds
    #[arg(long, value_name = "MS", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    timeout: u64,
}

/// Exit statuses, beside 0 for an answer.
const NOTHING_THERE: u8 = 1;
const NOT_KNOWN: u8 = 3;

/// What became of the question whether RoCEv2 is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    /// A urxe process answered.
    Urxe,
    /// The host, or a router, says that there is nothing.
    Refused,
    /// Nobody said anything.
    Silent,
}

/// What was found out.
#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    address: IpAddr,
    port: u16,
    source: IpAddr,
    /// The device that a program would use, if it goes out of one.
    device: Option<String>,
    interface_mtu_bytes: Option<u32>,
    /// The largest IP packet, as the kernel knows so far.
    path_ip_mtu_bytes: Option<u32>,
    verdict: Verdict,
    /// Why it was refused.
    reason: Option<String>,
    version: Option<String>,
    questions: u32,
    answers: u32,
    round_trip_us: Option<RoundTrip>,
    /// The largest path MTU whose packets arrive.
    path_mtu_bytes: Option<usize>,
    /// Whether the host answers an ICMP echo; none if that was not asked or is not permitted.
    answers_icmp_echo: Option<bool>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct RoundTrip {
    min: f64,
    mean: f64,
    max: f64,
}

/// Asks, prints, and says by its status what it found.
pub(crate) fn run(options: &Ping) -> Result<ExitCode> {
    let target = resolve(&options.address, options.port)?;
    let report = examine(target, options)?;
    if options.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        for line in report.lines() {
            println!("{line}");
        }
    }
    Ok(match report.verdict {
        Verdict::Urxe => ExitCode::SUCCESS,
        Verdict::Refused => NOTHING_THERE.into(),
        Verdict::Silent => NOT_KNOWN.into(),
    })
}

fn resolve(name: &str, port: u16) -> Result<SocketAddr> {
    // An address with its interface, as in fe80::1%eth0.
    if let Some((address, interface)) = name.split_once('%') {
        let ip = address
            .parse()
            .with_context(|| format!("'{address}' is not an IPv6 address"))?;
        let interfaces = urxe_udp::interfaces().context("cannot list the network interfaces")?;
        let found = interfaces
            .iter()
            .find(|found| found.name == interface || found.index.to_string() == interface);
        let index = found
            .with_context(|| format!("there is no network interface '{interface}'"))?
            .index;
        return Ok(SocketAddrV6::new(ip, port, 0, index).into());
    }
    let mut addresses = (name, port)
        .to_socket_addrs()
        .with_context(|| format!("cannot find the address of '{name}'"))?;
    addresses
        .next()
        .with_context(|| format!("'{name}' has no address"))
}

/// The address from which packets to `target` go out, without sending any.
fn source_towards(target: SocketAddr) -> Result<SocketAddr> {
    let any = if target.is_ipv4() {
        "0.0.0.0:0"
    } else {
        "[::]:0"
    };
    let found = UdpSocket::bind(any).and_then(|socket| {
        socket.connect(target)?;
        socket.local_addr()
    });
    found.with_context(|| format!("no way to {}", target.ip()))
}

fn examine(target: SocketAddr, options: &Ping) -> Result<Report> {
    let source = source_towards(target)?;
    let device = device_with(source.ip());
    let mut report = Report {
        schema: 1,
        address: target.ip(),
        port: target.port(),
        source: source.ip(),
        device: device.as_ref().map(|device| device.name.clone()),
        interface_mtu_bytes: device.as_ref().map(|device| device.netdev_mtu_bytes),
        path_ip_mtu_bytes: path_mtu_bytes(None, target).ok(),
        verdict: Verdict::Silent,
        reason: None,
        version: None,
        questions: 0,
        answers: 0,
        round_trip_us: None,
        path_mtu_bytes: None,
        answers_icmp_echo: None,
    };
    let timeout = Duration::from_millis(options.timeout);
    let mut asker = Asker::new(source, target, timeout)?;
    let mut times_us = Vec::new();
    for _ in 0..options.count {
        report.questions += 1;
        match asker.ask(PingQuestion::MIN_BYTES)? {
            Outcome::Answer(answer, time) => {
                report.version = Some(answer.version);
                times_us.push(time.as_secs_f64() * 1e6);
            }
            Outcome::Refused(reason) => {
                report.verdict = Verdict::Refused;
                report.reason = Some(reason);
                break;
            }
            Outcome::Silence => {}
        }
    }
    report.answers = u32::try_from(times_us.len()).unwrap_or(u32::MAX);
    if let Some(first) = times_us.first().copied() {
        report.verdict = Verdict::Urxe;
        report.reason = None;
        report.round_trip_us = Some(RoundTrip {
            min: times_us.iter().copied().fold(first, f64::min),
            mean: times_us.iter().sum::<f64>() / times_us.len() as f64,
            max: times_us.iter().copied().fold(first, f64::max),
        });
        report.path_mtu_bytes = largest_mtu(&mut asker)?;
        // Asking may have taught the kernel.
        report.path_ip_mtu_bytes = path_mtu_bytes(None, target).ok();
    } else if report.verdict == Verdict::Silent {
        report.answers_icmp_echo = icmp_echo(target, timeout);
    }
    Ok(report)
}

fn device_with(address: IpAddr) -> Option<DeviceInfo> {
    let devices = urxe_device::list().ok()?;
    devices
        .into_iter()
        .find(|device| device.gids.iter().any(|gid| gid.gid.to_ip() == address))
}

/// The largest path MTU with which the longest packets arrive.
fn largest_mtu(asker: &mut Asker) -> Result<Option<usize>> {
    /// Headers beside payload and ICRC in the longest ordinary packet, a WRITE with immediate data: BTH, RETH,
    /// immediate.
    const HEADERS_BYTES: usize = 12 + 16 + 4;
    /// A single packet may be lost.
    const ATTEMPTS: usize = 2;
    for mtu in Mtu::ALL.into_iter().rev() {
        let length = mtu.bytes() + HEADERS_BYTES + 4;
        for _ in 0..ATTEMPTS {
            match asker.ask(length.max(PingQuestion::MIN_BYTES))? {
                Outcome::Answer(answer, _) if answer.length_bytes >= length => {
                    return Ok(Some(mtu.bytes()));
                }
                // It does not fit: the interface or a router says so.
                Outcome::Refused(_) => break,
                _ => {}
            }
        }
    }
    Ok(None)
}

enum Outcome {
    Answer(PingAnswer, Duration),
    /// In words.
    Refused(String),
    Silence,
}

/// Asks questions, one after the other.
struct Asker {
    socket: Socket,
    waiter: Waiter,
    buffer: RecvBuffer,
    target: SocketAddr,
    timeout: Duration,
    transaction: u64,
}

impl Asker {
    fn new(source: SocketAddr, target: SocketAddr, timeout: Duration) -> Result<Self> {
        let mut address = source;
        address.set_port(0);
        let options = Options {
            receive_buffer_bytes: 1 << 16,
            send_buffer_bytes: 1 << 16,
            gro: false,
            ..Options::default()
        };
        let socket = Socket::bind(address, &options)
            .with_context(|| format!("cannot make a socket at {}", source.ip()))?;
        report_errors(&socket, target.is_ipv6()).context("cannot ask for ICMP errors")?;
        let waiter = Waiter::new()?;
        waiter.add(&socket, 0, Interest::READ)?;
        Ok(Self {
            socket,
            waiter,
            buffer: RecvBuffer::new(),
            target,
            timeout,
            // Answers to an earlier run at the same port are not ours.
            transaction: u64::from(std::process::id()) << 32,
        })
    }

    fn ask(&mut self, length_bytes: usize) -> Result<Outcome> {
        self.transaction += 1;
        let question = PingQuestion {
            transaction: self.transaction,
            length_bytes,
        };
        let datagram = question
            .datagram(self.socket.local_address(), self.target)
            .context("no question of this length between these addresses")?;
        let iov = [Piece::new(&datagram)];
        let transmit = Transmit {
            destination: &Destination::new(self.target),
            segment_size: None,
            tos: 0,
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
                    let answer = PingAnswer::parse(&self.buffer.bytes()[..meta.len]);
                    let is_from_there = meta.source.ip() == self.target.ip();
                    if let Some(answer) = answer
                        .filter(|answer| is_from_there && answer.transaction == self.transaction)
                    {
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

/// Lets ICMP errors come back as errors of the socket, though it is not connected (ip(7) `IP_RECVERR`): a connected
/// one would number its datagrams, and their ICRC has to know the number.
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

/// Whether the host answers an ICMP echo; `None` where asking is not permitted (icmp(7), `ping_group_range`).
fn icmp_echo(target: SocketAddr, timeout: Duration) -> Option<bool> {
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

impl Report {
    fn lines(&self) -> Vec<String> {
        let device = self.device.as_deref().unwrap_or("no urxe device");
        let bytes =
            |bytes: Option<u32>| bytes.map_or("unknown".to_owned(), |b| format!("{b} bytes"));
        let mut lines = vec![
            format!("{} from {} ({device})", self.address, self.source),
            format!(
                "IP packets: interface {}, path {} as far as the kernel knows",
                bytes(self.interface_mtu_bytes),
                bytes(self.path_ip_mtu_bytes)
            ),
        ];
        let port = self.port;
        match self.verdict {
            Verdict::Urxe => {
                let version = self.version.as_deref().unwrap_or("?");
                lines.push(format!("UDP port {port}: urxe {version} answers"));
            }
            Verdict::Refused => {
                let reason = self.reason.as_deref().unwrap_or("refused");
                lines.push(format!("UDP port {port}: no: {reason}"));
            }
            Verdict::Silent => lines.extend(self.silence()),
        }
        if let Some(RoundTrip { min, mean, max }) = self.round_trip_us {
            lines.push(format!(
                "round trip: min {min:.1} us, mean {mean:.1} us, max {max:.1} us ({} answers to {} questions)",
                self.answers, self.questions
            ));
            lines.push(match self.path_mtu_bytes {
                Some(mtu) => format!("path MTU: {mtu}"),
                None => "path MTU: not even packets of path MTU 256 arrive".to_owned(),
            });
        }
        lines
    }

    fn silence(&self) -> Vec<String> {
        let host = match self.answers_icmp_echo {
            Some(true) => {
                "The host itself is up: it answers ICMP echo. And it does not refuse the port, so a RoCEv2 stack \
                 other than urxe may be there (Linux rxe, a NIC), or a firewall."
            }
            Some(false) => {
                "The host does not answer ICMP echo either: it may be down, or a firewall keeps both away."
            }
            None => {
                "Whether the host is up is not known: this user may not send ICMP echo here \
                 (net.ipv4.ping_group_range). It may be down, or have a RoCEv2 stack other than urxe, or a firewall."
            }
        };
        vec![
            format!("UDP port {}: no answer", self.port),
            host.to_owned(),
        ]
    }
}
