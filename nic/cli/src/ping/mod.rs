//! `urxe ping`: whether RoCEv2 gets through to an address, and what its path is like.
mod ask;

use std::net::{IpAddr, SocketAddr, SocketAddrV6, ToSocketAddrs, UdpSocket};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use ask::{Asker, Outcome, icmp_echo};
use serde::Serialize;
use urxe_device::{DeviceInfo, Mtu, PingQuestion};
use urxe_udp::path_mtu_bytes;

/// Options of `urxe ping`.
#[derive(clap::Args)]
pub(crate) struct Ping {
    /// The IP address or name of the other host
    address: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The UDP port: 4791 is that of every RoCEv2 stack; further processes of one urxe host have
    /// the next ones
    #[arg(long, default_value_t = 4791)]
    port: u16,
    /// How many questions to ask
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    count: u32,
    /// How long to wait for each answer, milliseconds
    #[arg(long, value_name = "MS", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    timeout: u64,
}

/// The UDP port of RoCEv2, to which other stacks send their answers.
const ROCE_UDP_PORT: u16 = 4791;

/// Exit statuses, beside 0 for an answer.
const NOTHING_THERE: u8 = 1;
const NOT_KNOWN: u8 = 3;

/// What became of the question whether RoCEv2 is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    /// A urxe process answered.
    Urxe,
    /// The connection manager of another stack answered.
    Roce,
    /// The host, or a router, says that there is nothing.
    Refused,
    /// No answer of any kind came.
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
    /// Whether answers of other stacks could have been heard: not if a urxe program here has the
    /// port to which they go.
    hears_other_stacks: Option<bool>,
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
        Verdict::Urxe | Verdict::Roce => ExitCode::SUCCESS,
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
        hears_other_stacks: None,
        answers_icmp_echo: None,
    };
    let timeout = Duration::from_millis(options.timeout);
    let mut asker = Asker::new(with_port(source, 0), target, timeout)?
        .context("no UDP port is free on this host")?;
    report.count(options.count, || {
        let answer = asker.ask_urxe(PingQuestion::MIN_BYTES)?;
        Ok(answer.map(|answer| Some(answer.version)))
    })?;
    if report.answers > 0 {
        report.verdict = Verdict::Urxe;
        report.path_mtu_bytes = largest_mtu(&mut asker)?;
        // Asking may have taught the kernel.
        report.path_ip_mtu_bytes = path_mtu_bytes(None, target).ok();
    } else if report.verdict == Verdict::Silent {
        ask_other_stacks(&mut report, source, target, options)?;
    }
    Ok(report)
}

/// Whether another stack is there, or at least a host.
fn ask_other_stacks(
    report: &mut Report,
    source: SocketAddr,
    target: SocketAddr,
    options: &Ping,
) -> Result<()> {
    let timeout = Duration::from_millis(options.timeout);
    let asker = Asker::new(with_port(source, ROCE_UDP_PORT), target, timeout)?;
    report.hears_other_stacks = Some(asker.is_some());
    if let Some(mut asker) = asker {
        report.count(options.count, || {
            Ok(asker.ask_connection_manager()?.map(|()| None))
        })?;
    }
    if report.answers > 0 {
        report.verdict = Verdict::Roce;
    } else if report.verdict == Verdict::Silent {
        report.answers_icmp_echo = icmp_echo(target, timeout);
    }
    Ok(())
}

fn with_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}

fn device_with(address: IpAddr) -> Option<DeviceInfo> {
    let devices = urxe_device::list().ok()?;
    devices
        .into_iter()
        .find(|device| device.gids.iter().any(|gid| gid.gid.to_ip() == address))
}

/// The largest path MTU with which the longest packets arrive.
fn largest_mtu(asker: &mut Asker) -> Result<Option<usize>> {
    /// Headers beside payload and ICRC in the longest ordinary packet, a WRITE with immediate data:
    /// BTH, RETH, immediate.
    const HEADERS_BYTES: usize = 12 + 16 + 4;
    /// A single packet may be lost.
    const ATTEMPTS: usize = 2;
    for mtu in Mtu::ALL.into_iter().rev() {
        let length = mtu.bytes() + HEADERS_BYTES + 4;
        for _ in 0..ATTEMPTS {
            match asker.ask_urxe(length.max(PingQuestion::MIN_BYTES))? {
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

impl Report {
    /// Asks so many times, and takes down what comes. A refusal ends it; so does silence at first,
    /// after three questions.
    fn count(
        &mut self,
        questions: u32,
        mut ask: impl FnMut() -> Result<Outcome<Option<String>>>,
    ) -> Result<()> {
        const PATIENCE: u32 = 3;
        let mut times_us: Vec<f64> = Vec::new();
        self.questions = 0;
        while self.questions < questions && !(self.questions >= PATIENCE && times_us.is_empty()) {
            self.questions += 1;
            match ask()? {
                Outcome::Answer(version, time) => {
                    self.version = version;
                    times_us.push(time.as_secs_f64() * 1e6);
                }
                Outcome::Refused(reason) => {
                    self.verdict = Verdict::Refused;
                    self.reason = Some(reason);
                    break;
                }
                Outcome::Silence => {}
            }
        }
        self.answers = u32::try_from(times_us.len()).unwrap_or(u32::MAX);
        self.round_trip_us = times_us.first().map(|first| RoundTrip {
            min: times_us.iter().copied().fold(*first, f64::min),
            mean: times_us.iter().sum::<f64>() / times_us.len() as f64,
            max: times_us.iter().copied().fold(*first, f64::max),
        });
        Ok(())
    }

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
            Verdict::Roce => lines.push(format!(
                "UDP port {port}: the connection manager of a RoCEv2 stack other than urxe answers"
            )),
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
        }
        if self.verdict == Verdict::Urxe {
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
                "The host itself is up: it answers ICMP echo, and does not refuse the port. There may be a RoCEv2 stack \
                 without a connection manager, or a firewall."
            }
            Some(false) => {
                "The host does not answer ICMP echo either: it may be down, or a firewall keeps all of this away."
            }
            None => {
                "Whether the host is up is not known: this user may not send ICMP echo here \
                 (net.ipv4.ping_group_range). It may be down, or have a RoCEv2 stack without a connection manager, or a \
                 firewall."
            }
        };
        let deaf = (self.hears_other_stacks == Some(false)).then(|| {
            format!(
                "Stacks other than urxe could not be asked: a urxe program here has UDP port {ROCE_UDP_PORT}, to which \
                 they answer."
            )
        });
        let mut lines = vec![format!("UDP port {}: no answer", self.port)];
        lines.extend(deaf);
        lines.push(host.to_owned());
        lines
    }
}
