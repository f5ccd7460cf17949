//! A capture file of what went over the wire, for Wireshark: pcapng, raw IP packets, and of RoCE v1
//! Ethernet frames, nanoseconds.
//!
//! Several processes may write one file. Each appends whole sections (a header, the interface,
//! packets) with one `write` each to a file opened with `O_APPEND`, so that they neither mix nor
//! wait for each other. The packets of one process are in order; those of several are in the order
//! in which the processes wrote, and a reader sorts them by their time.
//!
//! What is recorded is written within [`FLUSH_INTERVAL`], by a thread of its own: that much is lost
//! when the process is killed. A full buffer is written at once by the thread that fills it, so
//! memory is bounded and no packet is left out.

mod headers;

use std::borrow::Cow;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::{DataLink, Endianness};
use urxe_udp::FrameHeader;
use urxe_wire::icrc::{Flow, Verdict};

use self::headers::{Addressing, ethernet_frame, ip_packet};
use crate::attach::roce_v1;
use crate::process::threads::Uncancelled;
use crate::process::threads::with_signals_blocked;

/// How long a packet waits for the file, at most.
const FLUSH_INTERVAL: Duration = Duration::from_millis(100);
/// Bytes that wait for the file, at most (and one packet).
const BUFFER_BYTES: usize = 1 << 18;
/// Stands in a file's name for the process's number.
const PROCESS_PLACE: &str = "%p";

/// Which way a packet went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    In,
    Out,
}

impl Direction {
    /// The flags of an enhanced packet block: bits 0 and 1 are the direction (pcapng, 4.3.1).
    const fn flags(self) -> u32 {
        match self {
            Self::In => 1,
            Self::Out => 2,
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::In => "received",
            Self::Out => "sent",
        })
    }
}

/// Datagrams that pass a socket together, and what their headers have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passing {
    pub(crate) direction: Direction,
    pub(crate) time: SystemTime,
    pub(crate) source: SocketAddr,
    pub(crate) destination: SocketAddr,
    pub(crate) tos: u8,
    /// Length of every datagram but the last, which may be shorter.
    pub(crate) stride: usize,
    /// Of RoCE v1, what comes before each.
    pub(crate) frame: Option<FrameHeader>,
}

/// Interfaces of a section: raw IP packets, and Ethernet frames where the process has any.
const IP_INTERFACE: u32 = 0;
const FRAMES_INTERFACE: u32 = 1;

impl Passing {
    /// The IPv4 ID of the `index`-th datagram. Those of a batch that we send are numbered; a
    /// received one has the ID that its ICRC is right for.
    fn id(&self, index: usize, datagram: &[u8]) -> u16 {
        let counted = u16::try_from(index).unwrap_or(0);
        if self.direction == Direction::Out {
            return counted;
        }
        let flow = Flow::new(self.source, self.destination);
        match flow.map(|flow| flow.verify(datagram, counted)) {
            Some(Verdict::SomeId(id)) => id,
            _ => counted,
        }
    }
}

/// An open capture file.
#[derive(Debug)]
pub(crate) struct Capture {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    file: File,
    /// The process that writes: after a fork, the child has copies of a buffer and a lock that are
    /// not its own.
    pid: u32,
    buffer: Mutex<Buffer>,
    news: Condvar,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shared({:?})", self.file)
    }
}

/// A section under construction.
struct Buffer {
    writer: PcapNgWriter<Vec<u8>>,
    section: SectionHeaderBlock<'static>,
    interfaces: Vec<InterfaceDescriptionBlock<'static>>,
    packets: usize,
    is_closing: bool,
}

impl Capture {
    /// Opens the file for appending, and makes it if it is not there. `%p` in its name stands for
    /// the process's number. `device` is the name of the interface in the file.
    pub(crate) fn open(path: &Path, device: &str) -> io::Result<Arc<Self>> {
        let path = with_process(path);
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        let shared = Arc::new(Shared {
            file,
            pid: std::process::id(),
            buffer: Mutex::new(Buffer::new(device)?),
            news: Condvar::new(),
        });
        let theirs = Arc::clone(&shared);
        let builder = std::thread::Builder::new()
            .name("urxe-pcap".into())
            .stack_size(1 << 17);
        let thread = with_signals_blocked(|| builder.spawn(move || theirs.write_regularly()))?;
        Ok(Arc::new(Self {
            shared,
            thread: Some(thread),
        }))
    }

    /// Takes datagrams down. They are in the file soon after.
    pub(crate) fn record(&self, passing: &Passing, bytes: &[u8]) {
        let mut buffer = self.shared.lock();
        let was_empty = buffer.packets == 0;
        for (index, datagram) in bytes.chunks(passing.stride.max(1)).enumerate() {
            if let Some(frame) = &passing.frame {
                let frame = ethernet_frame(frame, passing.source, passing.destination, datagram);
                buffer.add(passing, FRAMES_INTERFACE, &frame);
                self.write_if_full(&mut buffer);
                continue;
            }
            let addressing = Addressing {
                source: passing.source,
                destination: passing.destination,
                tos: passing.tos,
                id: passing.id(index, datagram),
            };
            buffer.add(passing, IP_INTERFACE, &ip_packet(&addressing, datagram));
            self.write_if_full(&mut buffer);
        }
        if was_empty && buffer.packets > 0 {
            self.shared.news.notify_one();
        }
    }

    fn write_if_full(&self, buffer: &mut Buffer) {
        if buffer.writer.get_ref().len() >= BUFFER_BYTES {
            self.shared.write(buffer);
        }
    }

    /// Writes everything now.
    pub(crate) fn flush(&self) {
        if self.shared.is_ours() {
            self.shared.write(&mut self.shared.lock());
        }
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        if !self.shared.is_ours() {
            return;
        }
        self.flush();
        self.shared.lock().is_closing = true;
        self.shared.news.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Buffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_ours(&self) -> bool {
        self.pid == std::process::id()
    }

    /// Sleeps until there is something, gives others time to add to it, writes it.
    fn write_regularly(&self) {
        let mut buffer = self.lock();
        while !buffer.is_closing {
            buffer = self
                .news
                .wait_while(buffer, |buffer| buffer.packets == 0 && !buffer.is_closing)
                .unwrap_or_else(PoisonError::into_inner);
            buffer = self
                .news
                .wait_timeout_while(buffer, FLUSH_INTERVAL, |buffer| !buffer.is_closing)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
            self.write(&mut buffer);
        }
    }

    /// Appends the section to the file and begins the next one.
    fn write(&self, buffer: &mut Buffer) {
        if buffer.packets == 0 {
            return;
        }
        let _uncancelled = Uncancelled::new();
        if let Err(error) = (&self.file).write_all(buffer.writer.get_ref()) {
            log::error!("the capture file is incomplete: {error}");
        }
        buffer.begin();
    }
}

impl Buffer {
    fn new(device: &str) -> io::Result<Self> {
        let program = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
        let process = format!("{} (process {})", program.trim_end(), std::process::id());
        let section = SectionHeaderBlock {
            endianness: Endianness::native(),
            options: vec![
                SectionHeaderOption::UserApplication(Cow::Owned(format!(
                    "urxe {}",
                    env!("CARGO_PKG_VERSION")
                ))),
                SectionHeaderOption::Comment(Cow::Owned(process.clone())),
            ],
            ..SectionHeaderBlock::default()
        };
        let interface = |linktype| InterfaceDescriptionBlock {
            linktype,
            snaplen: 0,
            options: vec![
                InterfaceDescriptionOption::IfName(Cow::Owned(device.to_owned())),
                InterfaceDescriptionOption::IfDescription(Cow::Owned(process.clone())),
                // Nanoseconds: ten to the minus ninth.
                InterfaceDescriptionOption::IfTsResol(9),
            ],
        };
        let mut interfaces = vec![interface(DataLink::RAW)];
        if roce_v1::is_on() {
            interfaces.push(interface(DataLink::ETHERNET));
        }
        let mut buffer = Self {
            writer: PcapNgWriter::new(Vec::new()).map_err(io::Error::other)?,
            section,
            interfaces,
            packets: 0,
            is_closing: false,
        };
        buffer.begin();
        Ok(buffer)
    }

    /// Begins a section.
    fn begin(&mut self) {
        self.writer.get_mut().clear();
        self.packets = 0;
        let section = self.writer.write_pcapng_block(self.section.clone());
        debug_assert!(section.is_ok(), "a vector takes bytes");
        for interface in &self.interfaces {
            let interface = self.writer.write_pcapng_block(interface.clone());
            debug_assert!(interface.is_ok(), "a vector takes bytes");
        }
    }

    fn add(&mut self, passing: &Passing, interface_id: u32, packet: &[u8]) {
        let since_epoch = passing.time.duration_since(SystemTime::UNIX_EPOCH);
        let block = EnhancedPacketBlock {
            interface_id,
            timestamp: since_epoch.unwrap_or_default(),
            original_len: u32::try_from(packet.len()).unwrap_or(u32::MAX),
            data: Cow::Borrowed(packet),
            options: vec![EnhancedPacketOption::Flags(passing.direction.flags())],
        };
        let added = self.writer.write_pcapng_block(block);
        debug_assert!(added.is_ok(), "a vector takes bytes");
        self.packets += 1;
    }
}

fn with_process(path: &Path) -> PathBuf {
    match path.to_str() {
        Some(text) => text
            .replace(PROCESS_PLACE, &std::process::id().to_string())
            .into(),
        None => path.to_owned(),
    }
}
