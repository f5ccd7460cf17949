//! What stands between a device's sockets and the network when the environment asks for it: a
//! capture file (`URXE_PCAP`), a bad network (`URXE_IMPAIR`), a log line for each packet
//! (`URXE_LOG=trace`). Otherwise nothing stands there, and nothing is paid for.

pub(crate) mod wire;

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::SystemTime;

use urxe_proto::NotifiedControl;
use urxe_udp::{Options, RecvMeta, SendError, Sent, Socket, Tap, Transmit};

use crate::attach::capture::{Capture, Direction, Passing};
use crate::attach::congestion::{CongestionControl, DCQCN_VARIABLE};
use crate::attach::impair::{BadLink, ImpairCounters, Impairment};
use crate::process::across_fork::AcrossFork;
use crate::process::error::Error;
use wire::Wire;

/// The environment variable that names the capture file.
pub const PCAP_VARIABLE: &str = "URXE_PCAP";
/// The environment variable that says how bad the network is; [`Impairment`] has its form.
pub const IMPAIR_VARIABLE: &str = "URXE_IMPAIR";
/// The environment variable that sets the size of the sockets' receive buffers, bytes.
pub const RECEIVE_BUFFER_VARIABLE: &str = "URXE_RECEIVE_BUFFER";
/// The environment variable that keeps packets to UDP sockets, with the value `off`: see
/// [`Wiring::sockets_only`].
pub const FRAMES_VARIABLE: &str = "URXE_FRAMES";
/// The least of them: the kernel's own (`SOCK_MIN_RCVBUF`, about).
const RECEIVE_BUFFER_MIN_BYTES: usize = 2304;

/// What the sockets of an opened device pass through.
#[derive(Debug, Default)]
pub(crate) struct Taps {
    capture: Option<Arc<Capture>>,
    impairment: Option<(Impairment, Arc<ImpairCounters>)>,
    /// The bad network of each socket.
    links: Mutex<Vec<Weak<BadLink>>>,
    traces: bool,
    /// How the device controls congestion.
    pub(crate) congestion: CongestionControl,
    /// The same, as all its queue pairs share it.
    pub(crate) reaction: Option<Arc<dyn NotifiedControl>>,
    receive_buffer_bytes: Option<usize>,
    /// As [`Wiring::sockets_only`].
    pub(crate) sockets_only: bool,
}

/// What is to stand between a device and the network, by default nothing, and how it controls
/// congestion there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wiring {
    /// A capture file to append to. `%p` in its name stands for the process's number.
    pub pcap: Option<PathBuf>,
    /// How bad the network is.
    pub impairment: Impairment,
    /// How it controls congestion.
    pub congestion: CongestionControl,
    /// The receive buffer that its sockets ask for, bytes; `None` leaves it to them. The kernel
    /// gives twice as much, for its own bookkeeping.
    pub receive_buffer_bytes: Option<usize>,
    /// All packets take UDP sockets. Otherwise short ones go as Ethernet frames to neighbours, past
    /// the kernel's IP layer, where the process may do that and there is neither a capture nor a
    /// bad network.
    pub sockets_only: bool,
}

impl Wiring {
    /// What the process's environment asks for.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a variable that cannot be understood.
    pub fn from_environment() -> Result<Self, Error> {
        let impairment = std::env::var(IMPAIR_VARIABLE).unwrap_or_default();
        let congestion = std::env::var(DCQCN_VARIABLE).unwrap_or_default();
        let buffer = std::env::var(RECEIVE_BUFFER_VARIABLE).unwrap_or_default();
        let frames = std::env::var(FRAMES_VARIABLE).unwrap_or_default();
        Ok(Self {
            pcap: std::env::var_os(PCAP_VARIABLE)
                .filter(|path| !path.is_empty())
                .map(PathBuf::from),
            impairment: impairment
                .parse()
                .map_err(|why| Error::Invalid(format!("{IMPAIR_VARIABLE}: {why}")))?,
            congestion: congestion
                .parse()
                .map_err(|why| Error::Invalid(format!("{DCQCN_VARIABLE}: {why}")))?,
            receive_buffer_bytes: receive_buffer(&buffer)?,
            sockets_only: !has_frames(&frames)?,
        })
    }
}

/// Whether packets may go as frames; nothing is yes.
fn has_frames(text: &str) -> Result<bool, Error> {
    match text.trim() {
        "" | "on" => Ok(true),
        "off" => Ok(false),
        text => Err(Error::Invalid(format!(
            "{FRAMES_VARIABLE}: '{text}' is neither on nor off"
        ))),
    }
}

/// A number of bytes; nothing is none.
fn receive_buffer(text: &str) -> Result<Option<usize>, Error> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let bytes = text.parse().ok();
    match bytes.filter(|bytes| (RECEIVE_BUFFER_MIN_BYTES..1 << 30).contains(bytes)) {
        Some(bytes) => Ok(Some(bytes)),
        None => Err(Error::Invalid(format!(
            "{RECEIVE_BUFFER_VARIABLE}: '{text}' is not a number of bytes from \
             {RECEIVE_BUFFER_MIN_BYTES} to 2^30-1"
        ))),
    }
}

/// By process, since the child of a fork has no threads that write and send, and by device.
type Key = (u32, String);

/// What the sockets of opened devices pass through.
pub(crate) static TAPS: AcrossFork<Vec<(Key, Weak<Taps>)>> = AcrossFork::new(Vec::new());

impl Taps {
    /// What `wiring` says, for the device `name`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the capture file cannot be written.
    pub(crate) fn new(wiring: &Wiring, name: &str) -> Result<Self, Error> {
        let capture = wiring.pcap.as_ref().map(|path| {
            Capture::open(path, name).map_err(|error| {
                Error::Invalid(format!(
                    "cannot write the capture {}: {error}",
                    path.display()
                ))
            })
        });
        let impairment = wiring.impairment;
        Ok(Self {
            capture: capture.transpose()?,
            impairment: (!impairment.is_none()).then(|| (impairment, Arc::default())),
            links: Mutex::default(),
            traces: log::log_enabled!(log::Level::Trace),
            congestion: wiring.congestion,
            reaction: wiring.congestion.reaction(),
            receive_buffer_bytes: wiring.receive_buffer_bytes,
            sockets_only: wiring.sockets_only,
        })
    }

    /// What the process's environment asks for, for the device `name`: the same as long as anything
    /// has it, so that all sockets of a device pass through one.
    ///
    /// # Errors
    /// As [`Wiring::from_environment`] and [`Self::new`].
    pub(crate) fn of_environment(name: &str) -> Result<Arc<Self>, Error> {
        let key = (std::process::id(), name.to_owned());
        let mut all = TAPS.lock();
        all.retain(|(_, taps)| taps.strong_count() > 0);
        let known = all.iter().find(|(known, _)| *known == key);
        if let Some(taps) = known.and_then(|(_, taps)| taps.upgrade()) {
            return Ok(taps);
        }
        let taps = Arc::new(Self::new(&Wiring::from_environment()?, name)?);
        all.push((key, Arc::downgrade(&taps)));
        Ok(taps)
    }

    /// The socket that `bind` makes, with what stands between it and the network. Every socket of a
    /// device is made so.
    pub(crate) fn bind(
        &self,
        options: &Options,
        bind: impl FnOnce(&Options) -> io::Result<Socket>,
    ) -> io::Result<Socket> {
        let options = &Options {
            receive_buffer_bytes: self
                .receive_buffer_bytes
                .unwrap_or(options.receive_buffer_bytes),
            ..*options
        };
        if self.capture.is_none() && self.impairment.is_none() && !self.traces {
            return bind(options);
        }
        let socket = bind(&Options {
            // The IPv4 ID of a datagram, and so its ICRC, depends on its place in a batch. If some
            // of a batch are lost, none of the others may have been in one.
            gso: options.gso && self.impairment.is_none(),
            // It would not pass here.
            frames: false,
            ..*options
        })?;
        let wire = Arc::new(Wire {
            local: socket.local_address(),
            socket: socket.duplicate()?,
            capture: self.capture.clone(),
            traces: self.traces,
        });
        let link = self
            .impairment
            .as_ref()
            .map(|(impairment, counters)| BadLink::new(*impairment, counters, &wire).map(Arc::new))
            .transpose()?;
        if let Some(link) = &link {
            let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
            links.push(Arc::downgrade(link));
        }
        Ok(socket.with_tap(Box::new(DeviceTap { wire, link })))
    }

    /// Sends what waits to be late, and writes out what the capture still holds. For the end of the
    /// process.
    pub(crate) fn flush(&self) {
        // try_lock: a thread that was ended while it held the lock must not stop the exit.
        if let Ok(links) = self.links.try_lock() {
            links
                .iter()
                .filter_map(Weak::upgrade)
                .for_each(|link| link.flush());
        }
        if let Some(capture) = &self.capture {
            capture.flush();
        }
    }

    /// What the bad network did; `None` on a good one.
    pub(crate) fn impair_counters(&self) -> Option<&ImpairCounters> {
        self.impairment
            .as_ref()
            .map(|(_, counters)| counters.as_ref())
    }
}

/// See the module.
#[derive(Debug)]
struct DeviceTap {
    wire: Arc<Wire>,
    link: Option<Arc<BadLink>>,
}

impl Tap for DeviceTap {
    fn send(&self, transmit: &Transmit<'_>, bytes: &[u8]) -> Result<Sent, SendError> {
        match &self.link {
            None => self.wire.send_batch(transmit, bytes),
            Some(link) => link.send(transmit, bytes),
        }
    }

    fn received(&self, meta: &RecvMeta, bytes: &[u8]) {
        let passing = Passing {
            direction: Direction::In,
            time: SystemTime::now(),
            source: meta.source,
            destination: self.wire.local,
            tos: meta.tos,
            stride: meta.stride,
            frame: meta.frame,
        };
        self.wire.record(&passing, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_on_or_off() {
        for (text, expected) in [("", true), (" on\n", true), ("off", false)] {
            assert_eq!(has_frames(text).unwrap(), expected);
        }
        let error = has_frames("no").unwrap_err().to_string();
        assert!(
            error.contains("URXE_FRAMES: 'no' is neither on nor off"),
            "{error}"
        );
    }
}
