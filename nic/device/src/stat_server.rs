//! Counters and queue pairs of a running process, for a program that asks from outside: `urxe
//! stat`, `urxe qp`.
//!
//! A process with queue pairs listens on a Unix socket with an abstract name, which exists in its
//! network namespace and vanishes with the process. A thread of its own answers, which sleeps until
//! it is asked: it works whatever the program does, and costs nothing meanwhile. A process that
//! connects gets a [`ProcessStat`] as JSON, if it is of the same user or root.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use urxe_proto::{QpState, QpType, QueuePair};
use urxe_udp::Private;
use urxe_wire::ROCE_UDP_PORT;

use crate::engine::Engine;
use crate::engine::counters::{Named, device_counters, stream_counters, transport_counters};
use crate::engine::table::Slot;
use crate::nic::Nic;
use crate::nic::opened::opened;
use crate::process::across_fork::AcrossFork;
use crate::process::threads::with_signals_blocked;
use crate::stream;

/// What the names of the sockets begin with, after the zero byte of an abstract name. The process's
/// number and a random one follow.
pub const STAT_SOCKET_PREFIX: &str = "urxe-stat/";

/// The version of [`ProcessStat`]. It grows when a field changes its meaning or goes away; new
/// fields and counters may come at any time.
pub const STAT_SCHEMA: u32 = 1;

/// How long an asker may take to read the answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(1);

/// Counters by name.
pub type Counters = BTreeMap<String, u64>;

/// What a process tells of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessStat {
    /// [`STAT_SCHEMA`].
    pub schema: u32,
    /// The version of urxe in the process.
    pub version: String,
    /// Its number, in its own PID namespace.
    pub pid: u32,
    /// Its name, as in `/proc/PID/comm`.
    pub comm: String,
    /// Its user, as the kernel tells the program that asks; the process itself does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// Its opened devices.
    pub devices: Vec<DeviceStat>,
}

/// An opened device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceStat {
    /// Its name.
    pub device: String,
    /// The network interface.
    pub interface: String,
    /// Its index.
    pub interface_index: u32,
    /// The UDP port on which it listens; none before the first queue pair.
    pub udp_port: Option<u16>,
    /// Counters of the device, those of its queue pairs added up, destroyed ones included.
    pub counters: Counters,
    /// Its queue pairs.
    pub qps: Vec<QpStat>,
}

/// A queue pair.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct QpStat {
    /// Its number.
    pub lqpn: u32,
    /// The number of its peer; none before it has one, or where there is none.
    pub rqpn: Option<u32>,
    /// `RC`, `UC`, `UD`, `XRC_INI` or `XRC_TGT`.
    pub r#type: String,
    /// `RESET`, `INIT`, `RTR`, `RTS`, `SQD`, `SQE` or `ERR`.
    pub state: String,
    /// The next sequence number that it expects.
    pub rq_psn: u32,
    /// The next sequence number that it sends.
    pub sq_psn: u32,
    /// Its protection domain.
    pub pdn: u32,
    /// The path MTU.
    pub path_mtu_bytes: usize,
    /// The local IP address.
    pub local_address: Option<String>,
    /// The peer's IP address.
    pub remote_address: Option<String>,
    /// Its counters.
    pub counters: Counters,
}

fn add(counters: &mut Counters, named: &[Named]) {
    for (name, value) in named {
        *counters.entry((*name).to_owned()).or_default() += *value;
    }
}

impl Nic {
    /// What it tells of itself, now. It takes the engine for a moment, as a thread of the program
    /// does.
    #[must_use]
    pub fn stat(&self) -> DeviceStat {
        let info = self.info();
        let mut stat = DeviceStat {
            device: info.name.clone(),
            interface: info.netdev.clone(),
            interface_index: info.ifindex,
            ..DeviceStat::default()
        };
        if let Some(impaired) = self.taps().impair_counters() {
            add(&mut stat.counters, &impaired.named());
        }
        let engine = self.engine_patiently();
        stat.udp_port = engine
            .sockets
            .as_ref()
            .map(|sockets| ROCE_UDP_PORT + sockets.slot);
        add(&mut stat.counters, &device_counters(&engine.stats));
        add(&mut stat.counters, &engine.departed.0);
        for slot in engine.qps.iter() {
            add(&mut stat.counters, &transport_counters(slot.qp.stats()));
            stat.qps.push(qp_stat(&engine, slot));
        }
        if let Some(streams) = &engine.streams {
            add(&mut stat.counters, &stream_counters(streams.departed()));
            for slot in streams.iter() {
                add(&mut stat.counters, &stream_counters(slot.qp.stats()));
                stat.qps.push(stream_qp_stat(slot));
            }
        }
        let sockets: Vec<_> = engine
            .ports()
            .iter()
            .filter_map(|port| port.socket.clone())
            .collect();
        for socket in &sockets {
            let (sent, received) = socket.frame_counts();
            let counts = [("tx_frames", sent), ("rx_frames", received)];
            add(&mut stat.counters, &counts);
        }
        // The rest are system calls, for which no thread has to wait.
        drop(engine);
        let drops = sockets
            .iter()
            .filter_map(|socket| socket.receive_drops().ok());
        add(
            &mut stat.counters,
            &[("rx_buffer_drops", drops.map(u64::from).sum())],
        );
        stat.qps.sort_by_key(|qp| qp.lqpn);
        stat
    }
}

/// The counters of a device, of all of this process's contexts of it that are open, added up: those
/// of [`DeviceStat`]. Empty if there are none.
#[must_use]
pub fn counters_of(device: &str) -> Counters {
    let mut sum = Counters::new();
    for nic in opened() {
        if nic.info().name == device {
            for (name, value) in nic.stat().counters {
                *sum.entry(name).or_default() += value;
            }
        }
    }
    sum
}

fn qp_stat(engine: &Engine, slot: &Slot) -> QpStat {
    let qp = &slot.qp;
    let attributes = qp.query();
    let path = slot.path.as_ref();
    let local = path.and_then(|path| engine.ports().get(path.port)?.socket.as_ref());
    let mut counters = Counters::new();
    let packets = [
        ("tx_packets", qp.stats().tx_packets),
        ("rx_packets", qp.stats().rx_packets),
    ];
    add(&mut counters, &packets);
    add(&mut counters, &transport_counters(qp.stats()));
    QpStat {
        lqpn: qp.number().get(),
        rqpn: path.map(|_| attributes.dest_qp.get()),
        r#type: type_name(qp).to_owned(),
        state: state_name(attributes.state).to_owned(),
        rq_psn: attributes.rq_psn.get(),
        sq_psn: attributes.sq_psn.get(),
        pdn: qp.pd().0,
        path_mtu_bytes: attributes.path_mtu.bytes(),
        local_address: local.map(|socket| socket.local_address().ip().to_string()),
        remote_address: path.map(|path| path.destination.address().ip().to_string()),
        counters,
    }
}

/// That of an iWARP device: it has no number of its peer's, nor packets.
fn stream_qp_stat(slot: &stream::Slot) -> QpStat {
    let qp = &slot.qp;
    let addresses = slot.socket.as_ref().map(|socket| socket.addresses);
    let mut counters = Counters::new();
    add(&mut counters, &stream_counters(qp.stats()));
    QpStat {
        lqpn: qp.number().get(),
        r#type: "RC".to_owned(),
        state: state_name(qp.state()).to_owned(),
        pdn: qp.pd().0,
        local_address: addresses.map(|(local, _)| local.ip().to_string()),
        remote_address: addresses.map(|(_, remote)| remote.ip().to_string()),
        counters,
        ..QpStat::default()
    }
}

const fn type_name(qp: &QueuePair) -> &'static str {
    match qp.config().qp_type {
        QpType::Rc => "RC",
        QpType::Uc => "UC",
        QpType::Ud => "UD",
        QpType::XrcInitiator => "XRC_INI",
        QpType::XrcTarget => "XRC_TGT",
    }
}

const fn state_name(state: QpState) -> &'static str {
    match state {
        QpState::Reset => "RESET",
        QpState::Init => "INIT",
        QpState::ReadyToReceive => "RTR",
        QpState::ReadyToSend => "RTS",
        QpState::SendQueueDrain => "SQD",
        QpState::SendQueueError => "SQE",
        QpState::Error => "ERR",
    }
}

/// The process that answers. The child of a fork has no thread, and starts its own.
pub(crate) static SERVING: AcrossFork<Option<u32>> = AcrossFork::new(None);

/// Lets this process answer, from the first call on.
///
/// # Errors
/// When there is no descriptor or thread to be had.
pub(crate) fn serve() -> io::Result<()> {
    let pid = std::process::id();
    let mut serving = SERVING.lock();
    if *serving == Some(pid) {
        return Ok(());
    }
    let unique = getrandom::u64().map_err(io::Error::other)?;
    let name = format!("{STAT_SOCKET_PREFIX}{pid}/{unique:016x}");
    // A child of a fork that kept it would let askers wait once the parent has ended.
    let listener = Private::from(UnixListener::bind_addr(&SocketAddr::from_abstract_name(
        name,
    )?)?);
    let builder = std::thread::Builder::new()
        .name("urxe-stat".into())
        .stack_size(1 << 18);
    with_signals_blocked(|| builder.spawn(move || answer_all(&listener)))?;
    *serving = Some(pid);
    Ok(())
}

fn answer_all(listener: &UnixListener) {
    loop {
        match listener.accept() {
            Ok((asker, _)) => {
                if let Err(error) = answer(asker) {
                    log::debug!("an answer to `urxe stat` did not get through: {error}");
                }
            }
            // No descriptors left: the program's problem, and not for long, or for ever.
            Err(_) => std::thread::sleep(WRITE_TIMEOUT),
        }
    }
}

fn answer(mut asker: UnixStream) -> io::Result<()> {
    // SAFETY: this call cannot fail.
    let own_user = unsafe { libc::geteuid() };
    let user = peer(&asker)?.uid;
    if user != own_user && user != 0 {
        return Ok(());
    }
    let comm = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
    let stat = ProcessStat {
        schema: STAT_SCHEMA,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        comm: comm.trim_end().to_owned(),
        uid: None,
        devices: opened().iter().map(|nic| nic.stat()).collect(),
    };
    let text = serde_json::to_vec(&stat)?;
    asker.set_write_timeout(Some(WRITE_TIMEOUT))?;
    asker.write_all(&text)
}

/// The process at the other end of a Unix socket: the one that listened, or that connected.
///
/// # Errors
/// Those of getsockopt(2).
pub fn peer(stream: &UnixStream) -> io::Result<libc::ucred> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to the structure.
    let status = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        )
    };
    if status == 0 {
        Ok(peer)
    } else {
        Err(io::Error::last_os_error())
    }
}
