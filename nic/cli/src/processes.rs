//! The processes that use urxe devices, in this network namespace.
use std::io::Read;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use urxe_device::{ProcessStat, STAT_SCHEMA, STAT_SOCKET_PREFIX};

/// The kernel's list of Unix sockets in the network namespace of who reads it (proc(5)).
const SOCKETS: &str = "/proc/self/net/unix";
/// `__SO_ACCEPTCON` of linux/net.h, the flag of a socket that listens.
const LISTENS: u32 = 0x1_0000;
/// How long a process may take to answer.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Asks every process. Of those that do not answer, and why, a line is said on stderr; those of other users are
/// left out silently.
pub(crate) fn all() -> Result<Vec<ProcessStat>> {
    let sockets =
        std::fs::read_to_string(SOCKETS).with_context(|| format!("cannot read {SOCKETS}"))?;
    let mut processes = Vec::new();
    for name in names(&sockets) {
        match ask(name) {
            Ok(Some(process)) => processes.push(process),
            Ok(None) => {}
            Err(error) => eprintln!("urxe: {}: {error:#}", shown(name)),
        }
    }
    processes.sort_by_key(|process| process.pid);
    Ok(processes)
}

/// The abstract names, without the zero byte (which the kernel shows as `@`), of the sockets that answer.
fn names(sockets: &str) -> impl Iterator<Item = &str> {
    sockets.lines().skip(1).filter_map(|line| {
        // Num, RefCount, Protocol, Flags, Type, St, Inode, Path.
        let mut fields = line.split_whitespace();
        let flags = u32::from_str_radix(fields.nth(3)?, 16).ok()?;
        let name = fields.nth(3)?.strip_prefix('@')?;
        (flags & LISTENS != 0 && name.starts_with(STAT_SOCKET_PREFIX)).then_some(name)
    })
}

/// The process whose socket it is, for messages.
fn shown(name: &str) -> String {
    let inside = name.strip_prefix(STAT_SOCKET_PREFIX).unwrap_or(name);
    format!("process {}", inside.split('/').next().unwrap_or(inside))
}

/// What a process tells; `None` if it is another user's, or ended meanwhile.
fn ask(name: &str) -> Result<Option<ProcessStat>> {
    let Ok(mut stream) = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?) else {
        return Ok(None);
    };
    let peer = urxe_device::peer(&stream)?;
    // SAFETY: this call cannot fail.
    let own_user = unsafe { libc::geteuid() };
    // Anybody may listen under such a name.
    if own_user != 0 && peer.uid != own_user {
        return Ok(None);
    }
    stream.set_read_timeout(Some(TIMEOUT))?;
    let mut text = Vec::new();
    stream
        .read_to_end(&mut text)
        .context("does not answer (is it stopped?)")?;
    if text.is_empty() {
        return Ok(None);
    }
    let mut process: ProcessStat =
        serde_json::from_slice(&text).context("answers what is not understood")?;
    ensure!(
        process.schema == STAT_SCHEMA,
        "its urxe is version {}, with which this one cannot talk (schema {}, not {STAT_SCHEMA})",
        process.version,
        process.schema
    );
    // In our PID namespace, if it is in it.
    if let Some(pid) = u32::try_from(peer.pid).ok().filter(|pid| *pid != 0) {
        process.pid = pid;
    }
    process.comm = process.comm.replace(char::is_control, "?");
    Ok(Some(process))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listening_sockets_of_ours_are_asked() {
        let sockets = "\
            Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 43171 @urxe-stat/812/00ff\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 43172 @urxe-stat/812/00ff\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 43173 /run/urxe-stat/1\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 43174 @other\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 43175\n";
        assert_eq!(names(sockets).collect::<Vec<_>>(), ["urxe-stat/812/00ff"]);
        assert_eq!(shown("urxe-stat/812/00ff"), "process 812");
    }
}
