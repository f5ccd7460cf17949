//! The processes that use urxe devices, in this network namespace.
//!
//! Any user can listen under such names, and root asks them all. So nothing that is said is
//! trusted. The kernel says whose process it is and what it is called. Texts lose what a terminal
//! would obey, and time, bytes and processes of each user are bounded.
use std::collections::HashMap;
use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use urxe_device::{Counters, ProcessStat, STAT_SCHEMA, STAT_SOCKET_PREFIX};

/// The kernel's list of Unix sockets in the network namespace of the process that reads it
/// (proc(5)).
const SOCKETS: &str = "/proc/self/net/unix";
/// `__SO_ACCEPTCON` of linux/net.h, the flag of a socket that listens.
const LISTENS: u32 = 0x1_0000;
/// Characters of a text that is shown: the longest true one is an IPv6 address with a scope.
const TEXT_MAX: usize = 64;
/// Lines about processes that do not answer as they should.
const COMPLAINTS_MAX: usize = 16;
/// What a list or an object of an answer takes in memory, about, and an entry: a counter takes
/// more, other values less.
const OBJECT_BYTES: usize = 512;
const ENTRY_BYTES: usize = 64;
/// How much more memory than bytes an answer may take: true ones with many queue pairs take three
/// to five times as much.
const EXPANSION_MAX: usize = 6;
/// What any answer may take besides: devices without queue pairs are many objects and few bytes.
const EXPANSION_FREE_BYTES: usize = 64 << 10;
const STAYS_SILENT: &str = "does not answer (is it stopped?)";

/// What processes may take of the program that asks.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// How long processes that are asked at once may take to answer.
    timeout: Duration,
    /// How many are asked at once.
    at_once: usize,
    /// Processes of one user that are asked.
    processes: usize,
    /// Processes of one user that may fail to answer before its others are left out.
    failures: usize,
    /// How long all processes of one user together may be waited for.
    user_time: Duration,
    /// Bytes of one answer, and of all answers of one user: about 1 KiB for each queue pair.
    answer_bytes: usize,
    bytes: usize,
}

const LIMITS: Limits = Limits {
    timeout: Duration::from_secs(2),
    at_once: 128,
    processes: 1024,
    failures: 8,
    user_time: Duration::from_secs(6),
    answer_bytes: 32 << 20,
    bytes: 64 << 20,
};

/// Asks every process. Of those that do not answer, and why, a line is said on stderr; those of
/// other users are left out silently.
pub(crate) fn all() -> Result<Vec<ProcessStat>> {
    let sockets = std::fs::read(SOCKETS).with_context(|| format!("cannot read {SOCKETS}"))?;
    let sockets = String::from_utf8_lossy(&sockets);
    let names: Vec<_> = names(&sockets).collect();
    let (processes, complaints) = ask_all(&names, &LIMITS);
    for complaint in complaints.iter().take(COMPLAINTS_MAX) {
        eprintln!("urxe: {complaint}");
    }
    if let Some(more) = complaints.len().checked_sub(COMPLAINTS_MAX + 1) {
        eprintln!("urxe: and {} more of the kind", more + 1);
    }
    Ok(processes)
}

/// The abstract names, without the zero byte (which the kernel shows as `@`), of the sockets that
/// answer. [`urxe_device`] makes them of the number of a process and 16 hexadecimal digits; any
/// other name is another program's.
fn names(sockets: &str) -> impl Iterator<Item = &str> {
    sockets.lines().skip(1).filter_map(|line| {
        // Num, RefCount, Protocol, Flags, Type, St, Inode, Path.
        let mut fields = line.split_whitespace();
        let flags = u32::from_str_radix(fields.nth(3)?, 16).ok()?;
        let name = fields.nth(3)?.strip_prefix('@')?;
        let (pid, unique) = name.strip_prefix(STAT_SOCKET_PREFIX)?.split_once('/')?;
        let is_ours = pid.parse::<u32>().is_ok()
            && unique.len() == 16
            && unique.bytes().all(|byte| byte.is_ascii_hexdigit());
        (flags & LISTENS != 0 && is_ours).then_some(name)
    })
}

/// The process whose socket it is, for messages.
fn shown(name: &str) -> String {
    let inside = name.strip_prefix(STAT_SOCKET_PREFIX).unwrap_or(name);
    format!("process {}", inside.split('/').next().unwrap_or(inside))
}

/// What is left of a user's limits.
struct Left {
    processes: usize,
    failures: usize,
    time: Duration,
    bytes: usize,
}

impl Left {
    const fn is_used_up(&self) -> bool {
        self.processes == 0 || self.failures == 0 || self.time.is_zero()
    }
}

/// A process that was asked.
struct Asked<'a> {
    name: &'a str,
    stream: UnixStream,
    user: u32,
    /// In our PID namespace, if it is in it.
    pid: Option<u32>,
    text: Vec<u8>,
    /// Whether all has come, or why it will not.
    end: Option<Result<()>>,
}

/// What the processes behind these names tell, by their numbers, and a line for each that does not
/// as it should.
fn ask_all(names: &[&str], limits: &Limits) -> (Vec<ProcessStat>, Vec<String>) {
    let mut users: HashMap<u32, Left> = HashMap::new();
    let (mut processes, mut complaints) = (Vec::new(), Vec::new());
    for batch in names.chunks(limits.at_once) {
        let mut asked = Vec::new();
        for name in batch {
            match Asked::connect(name) {
                Ok(Some(process)) => {
                    let left = users.entry(process.user).or_insert(Left {
                        processes: limits.processes,
                        failures: limits.failures,
                        time: limits.user_time,
                        bytes: limits.bytes,
                    });
                    if !left.is_used_up() {
                        left.processes -= 1;
                        asked.push(process);
                    }
                }
                Ok(None) => {}
                Err(error) => complaints.push(format!("{}: {error:#}", shown(name))),
            }
        }
        listen(&mut asked, &mut users, limits);
        for process in asked {
            let (name, user) = (process.name, process.user);
            match process.read() {
                Ok(Some(stat)) => processes.push(stat),
                Ok(None) => {}
                Err(error) => {
                    complaints.push(format!("{}: {error:#}", shown(name)));
                    let left = users.get_mut(&user).map(|left| &mut left.failures);
                    left.into_iter()
                        .for_each(|left| *left = left.saturating_sub(1));
                }
            }
        }
    }
    for (user, left) in users {
        if left.is_used_up() {
            complaints.push(format!("further processes of user {user} were not asked"));
        }
    }
    processes.sort_by_key(|process| process.pid);
    (processes, complaints)
}

/// Takes in what processes say until all have, or until they, or their users, had their time.
fn listen(asked: &mut [Asked<'_>], users: &mut HashMap<u32, Left>, limits: &Limits) {
    let start = Instant::now();
    let mut buffer = vec![0; 1 << 16];
    let mut waited: HashMap<u32, Duration> = HashMap::new();
    loop {
        let elapsed = start.elapsed();
        let left = |each: &Asked<'_>| {
            let of_user = users
                .get(&each.user)
                .map_or(Duration::ZERO, |left| left.time);
            limits.timeout.min(of_user).saturating_sub(elapsed)
        };
        let mut open: Vec<_> = asked
            .iter_mut()
            .filter(|each| each.end.is_none() && !left(each).is_zero())
            .collect();
        let Some(soonest) = open.iter().map(|each| left(each)).min() else {
            break;
        };
        let timeout = Timespec::try_from(soonest).expect("a few seconds fit");
        let streams = open
            .iter()
            .map(|each| PollFd::new(&each.stream, PollFlags::IN));
        let mut polled: Vec<_> = streams.collect();
        match poll(&mut polled, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
        let ready: Vec<_> = polled
            .iter()
            .map(|each| !each.revents().is_empty())
            .collect();
        for (each, is_ready) in open.iter_mut().zip(ready) {
            // Until its last process has told all, it is this user that is waited for.
            waited.insert(each.user, start.elapsed());
            if !is_ready {
                continue;
            }
            let left = users.get_mut(&each.user).map_or(0, |left| left.bytes);
            let taken = each.take(&mut buffer, left.min(limits.answer_bytes - each.text.len()));
            if let Some(left) = users.get_mut(&each.user) {
                left.bytes -= taken;
            }
        }
    }
    for (user, waited) in waited {
        if let Some(left) = users.get_mut(&user) {
            left.time = left.time.saturating_sub(waited);
        }
    }
}

/// Whether an answer takes not much more memory than it has bytes: what has no name and no value is
/// short to write.
fn is_modest(text: &[u8]) -> bool {
    let of = |byte| match byte {
        b'{' | b'[' => OBJECT_BYTES,
        // One behind each entry but the last. Addresses have colons.
        b',' => ENTRY_BYTES,
        _ => 0,
    };
    let needed: usize = text.iter().map(|byte| of(*byte)).sum();
    needed <= text.len() * EXPANSION_MAX + EXPANSION_FREE_BYTES
}

impl<'a> Asked<'a> {
    /// Asks the process behind a name; `None` if it is another user's, or ended meanwhile.
    fn connect(name: &'a str) -> Result<Option<Self>> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        match connect(
            &socket,
            &SocketAddrUnix::new_abstract_name(name.as_bytes())?,
        ) {
            Ok(()) => {}
            // The queue of those that ask is full, and the process takes none out.
            Err(Errno::AGAIN) => bail!(STAYS_SILENT),
            Err(_) => return Ok(None),
        }
        let stream = UnixStream::from(socket);
        let peer = urxe_device::peer(&stream)?;
        let own_user = rustix::process::geteuid().as_raw();
        Ok((own_user == 0 || peer.uid == own_user).then(|| Self {
            name,
            stream,
            user: peer.uid,
            pid: u32::try_from(peer.pid).ok().filter(|pid| *pid != 0),
            text: Vec::new(),
            end: None,
        }))
    }

    /// Takes in what has come, of which so much fits. Returns how much it was.
    fn take(&mut self, buffer: &mut [u8], left: usize) -> usize {
        match self.stream.read(buffer) {
            Ok(0) => self.end = Some(Ok(())),
            Ok(len) if len > left => self.end = Some(Err(anyhow!("answers with more than fits"))),
            Ok(len) => {
                self.text.extend_from_slice(&buffer[..len]);
                return len;
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => self.end = Some(Err(error.into())),
        }
        0
    }

    /// What the process tells; `None` if it ended meanwhile.
    fn read(self) -> Result<Option<ProcessStat>> {
        self.end.unwrap_or_else(|| Err(anyhow!(STAYS_SILENT)))?;
        if self.text.is_empty() {
            return Ok(None);
        }
        ensure!(is_modest(&self.text), "answers what is not understood");
        // The parser's own words may have parts of what it read.
        let mut stat: ProcessStat = serde_json::from_slice(&self.text)
            .map_err(|_| anyhow!("answers what is not understood"))?;
        clean(&mut stat);
        ensure!(
            stat.schema == STAT_SCHEMA,
            "its urxe is version {}, with which this one cannot talk (schema {}, not {STAT_SCHEMA})",
            stat.version,
            stat.schema
        );
        stat.uid = Some(self.user);
        if let Some(pid) = self.pid {
            stat.pid = pid;
            if let Ok(comm) = std::fs::read(format!("/proc/{pid}/comm")) {
                stat.comm = String::from_utf8_lossy(&comm).trim_end().to_owned();
                clean_text(&mut stat.comm);
            }
        }
        Ok(Some(stat))
    }
}

/// Makes all texts ones that can be shown.
fn clean(stat: &mut ProcessStat) {
    clean_text(&mut stat.version);
    clean_text(&mut stat.comm);
    for device in &mut stat.devices {
        clean_text(&mut device.device);
        clean_text(&mut device.interface);
        clean_names(&mut device.counters);
        for qp in &mut device.qps {
            clean_text(&mut qp.r#type);
            clean_text(&mut qp.state);
            qp.local_address.iter_mut().for_each(clean_text);
            qp.remote_address.iter_mut().for_each(clean_text);
            clean_names(&mut qp.counters);
        }
    }
}

fn clean_names(counters: &mut Counters) {
    let named = std::mem::take(counters).into_iter();
    *counters = named
        .map(|(mut name, value)| {
            clean_text(&mut name);
            (name, value)
        })
        .collect();
}

/// Replaces what a terminal would obey, or not show where it is, and cuts what is too long.
fn clean_text(text: &mut String) {
    let is_harmless = |c: char| {
        // Marks of direction, joiners and what has no width (Unicode's Bidi_Control and
        // Default_Ignorable_Code_Point).
        let is_format = matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e0fff}');
        !c.is_control() && !is_format
    };
    if text.chars().count() > TEXT_MAX || !text.chars().all(is_harmless) {
        *text = text
            .chars()
            .take(TEXT_MAX)
            .map(|c| if is_harmless(c) { c } else { '?' })
            .collect();
    }
}

#[cfg(test)]
#[path = "processes/tests.rs"]
mod tests;
