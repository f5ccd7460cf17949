//! Between the processes of a host. All management datagrams come to one port, 4791, and so to the
//! one process that holds it; it passes on what is for others, over datagram sockets with abstract
//! names (unix(7)). These exist once per network namespace, as ports do; they vanish with their
//! process, and no other host can reach them.
//!
//! Three kinds of names: one per process and device, for answers, which carry the process's slot in
//! their communication ID; one per port that is listened on, for requests, which do not; and one
//! per port that is bound to, which nothing is sent to: having it makes the port this process's.

use std::io;
use std::net::IpAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use urxe_cm::{MAD_LEN, Path, PortSpace};
use urxe_udp::Private;
use urxe_wire::Gid;

const PREFIX: &str = "urxe-cm";
const MESSAGE_LEN: usize = 4 + 16 + 16 + 2 + MAD_LEN;

/// A datagram that another process passes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Relayed {
    pub(super) path: Path,
    pub(super) mad: [u8; MAD_LEN],
}

impl Relayed {
    fn emit(&self) -> [u8; MESSAGE_LEN] {
        let mut raw = [0; MESSAGE_LEN];
        raw[..4].copy_from_slice(&self.path.link.to_ne_bytes());
        raw[4..20].copy_from_slice(&self.path.local.0);
        raw[20..36].copy_from_slice(&self.path.remote.0);
        raw[36..38].copy_from_slice(&self.path.port.to_ne_bytes());
        raw[38..].copy_from_slice(&self.mad);
        raw
    }

    fn parse(raw: &[u8; MESSAGE_LEN]) -> Self {
        let gid = |at: usize| {
            let mut bytes = [0; 16];
            bytes.copy_from_slice(&raw[at..at + 16]);
            Gid(bytes)
        };
        let mut mad = [0; MAD_LEN];
        mad.copy_from_slice(&raw[38..]);
        Self {
            path: Path {
                link: u32::from_ne_bytes([raw[0], raw[1], raw[2], raw[3]]),
                local: gid(4),
                remote: gid(20),
                port: u16::from_ne_bytes([raw[36], raw[37]]),
                from: None,
            },
            mad,
        }
    }
}

fn process_name(link: u32, slot: u16) -> String {
    format!("{PREFIX}/{link}/{slot}")
}

fn bind(name: &str) -> io::Result<Private<UnixDatagram>> {
    let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Under this name a process gets what is for its slot of a device; the one with slot 0 passes on
/// from it.
pub(super) fn bind_process(link: u32, slot: u16) -> io::Result<Private<UnixDatagram>> {
    bind(&process_name(link, slot))
}

/// Passes a datagram on to the process with `slot`; false if there is none.
pub(super) fn to_process(from: &UnixDatagram, slot: u16, relayed: &Relayed) -> bool {
    let name = process_name(relayed.path.link, slot);
    send(from, &name, relayed)
}

/// Passes a request on to the process that listens; false if none does.
pub(super) fn to_listener(
    from: &UnixDatagram,
    space: PortSpace,
    port: u16,
    relayed: &Relayed,
) -> bool {
    let address = relayed.path.local.to_ip();
    let all_of_family = IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED);
    let all = IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED);
    let names = [
        Some(address),
        address.is_ipv4().then_some(all_of_family),
        Some(all),
    ];
    names
        .into_iter()
        .flatten()
        .any(|address| send(from, &listener_name(space, port, address), relayed))
}

fn send(from: &UnixDatagram, name: &str, relayed: &Relayed) -> bool {
    let Ok(address) = SocketAddr::from_abstract_name(name) else {
        return false;
    };
    match from.send_to_addr(&relayed.emit(), &address) {
        Ok(_) => true,
        // Its queue is full: lost, and sent again by the peer.
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    }
}

/// The next datagram that was passed on to `socket`. One that was not sent by the holder of port
/// 4791 of the device is dropped: no other process can say where it came from.
pub(super) fn receive(socket: &UnixDatagram) -> Option<Relayed> {
    let mut raw = [0; MESSAGE_LEN + 1];
    loop {
        let (len, from) = match socket.recv_from(&mut raw) {
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return None,
        };
        let Some(message) = raw.first_chunk().filter(|_| len == MESSAGE_LEN) else {
            continue;
        };
        let relayed = Relayed::parse(message);
        let holder = process_name(relayed.path.link, 0);
        if from.as_abstract_name() == Some(holder.as_bytes()) {
            return Some(relayed);
        }
    }
}

fn listener_name(space: PortSpace, port: u16, address: IpAddr) -> String {
    format!("{PREFIX}/listen/{:04x}/{port}/{address}", space as u16)
}

/// Under this name requests are passed on to a listener.
pub(super) fn bind_listener(
    space: PortSpace,
    port: u16,
    address: IpAddr,
) -> io::Result<Private<UnixDatagram>> {
    bind(&listener_name(space, port, address))
}

fn port_name(space: PortSpace, port: u16, address: IpAddr) -> String {
    format!("{PREFIX}/port/{:04x}/{port}/{address}", space as u16)
}

/// A port that is this process's, as long as this lives.
#[derive(Debug)]
pub(super) struct Reservation {
    _name: Private<UnixDatagram>,
}

impl Reservation {
    /// Takes a port of an address, or of all addresses of a family (`others` are the addresses that
    /// this then covers).
    ///
    /// # Errors
    /// EADDRINUSE if it, or one that overlaps with it, is taken.
    pub(super) fn take(
        space: PortSpace,
        port: u16,
        address: IpAddr,
        others: &[IpAddr],
    ) -> io::Result<Self> {
        let taken = |address: &IpAddr| {
            let name = port_name(space, port, *address);
            let probe =
                || UnixDatagram::unbound()?.connect_addr(&SocketAddr::from_abstract_name(name)?);
            probe().is_ok()
        };
        if others.iter().any(taken) {
            return Err(io::Error::from_raw_os_error(libc::EADDRINUSE));
        }
        let name = bind(&port_name(space, port, address))?;
        Ok(Self { _name: name })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names are of the whole network namespace; tests use links that no interface has.
    fn relayed(link: u32) -> Relayed {
        Relayed {
            path: Path {
                link,
                local: Gid::from(IpAddr::from([127, 0, 0, 1])),
                remote: Gid::from(IpAddr::from([192, 0, 2, 1])),
                port: 4799,
                from: None,
            },
            mad: [7; MAD_LEN],
        }
    }

    #[test]
    fn what_is_passed_on_arrives_and_only_from_the_holder() {
        let link = 0x7fff_0001 ^ std::process::id() << 8;
        let (holder, other) = (
            bind_process(link, 0).unwrap(),
            bind_process(link, 5).unwrap(),
        );
        let there = bind_process(link, 9).unwrap();
        assert!(to_process(&other, 9, &relayed(link)));
        assert_eq!(receive(&there), None, "not from the holder");
        assert!(to_process(&holder, 9, &relayed(link)));
        assert_eq!(receive(&there), Some(relayed(link)));
        drop(there);
        assert!(!to_process(&holder, 9, &relayed(link)));
    }

    #[test]
    fn a_port_is_one_processs_and_requests_come_to_it() {
        let link = 0x7fff_0002 ^ std::process::id() << 8;
        let holder = bind_process(link, 0).unwrap();
        let [any, one] = [IpAddr::from([0, 0, 0, 0]), IpAddr::from([127, 0, 0, 1])];
        let port = (std::process::id() % 60_000) as u16;
        let space = PortSpace::Ib;
        assert!(!to_listener(&holder, space, port, &relayed(link)));
        let whole = Reservation::take(space, port, any, &[one]).unwrap();
        let error = Reservation::take(space, port, one, &[any]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EADDRINUSE));
        assert!(!to_listener(&holder, space, port, &relayed(link)), "bound");
        let listener = bind_listener(space, port, any).unwrap();
        assert!(to_listener(&holder, space, port, &relayed(link)));
        assert_eq!(receive(&listener), Some(relayed(link)));
        drop(whole);
        let _one = Reservation::take(space, port, one, &[any]).unwrap();
    }
}
