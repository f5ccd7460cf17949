//! Addresses and ports of identifiers: binding, resolving, multicast groups.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;

use urxe_udp::Private;
use urxe_wire::{Gid, Qpn};

use super::agent::{Inner, errno};
use super::exchange;
use super::id::{Bound, CmAddress, CmEvent, CmEventKind, CmParam, DatagramParam, Group, State};
use super::relay::Reservation;
use crate::attach::list::DeviceInfo;
use crate::process::random::random_u32;

/// Ports for programs that do not care (RFC 6335 leaves them free; Linux begins here).
const EPHEMERAL: std::ops::Range<u16> = 32768..61000;
/// Random ports to try before "none is free".
const ATTEMPTS: usize = 64;

/// A port, what makes it this process's, and a socket of TCP that is bound to it.
type Reserved = (u16, Arc<Reservation>, Option<TcpListener>);

impl Inner {
    /// Binds an identifier to an address, which may be all addresses, and a port, which may be any.
    pub(super) fn bind(&mut self, id: u32, address: SocketAddr) -> io::Result<()> {
        self.in_state(id, &[State::Idle])?;
        // A loopback address names no device, as in the kernel: libfabric asks with one for all
        // devices.
        let device = if address.ip().is_unspecified() || address.ip().is_loopback() {
            None
        } else {
            Some(
                self.device_with(address)
                    .ok_or_else(|| errno(without_device(address)))?,
            )
        };
        let (port, reservation, tcp) =
            self.reserve(id, address, Self::is_stream(device.as_ref()))?;
        let entry = self.id(id)?;
        entry.tcp = tcp.map(Private::from);
        entry.source = Some(with_port(address, port));
        entry.device = device;
        entry.reservation = Some(reservation);
        entry.state = State::Bound;
        Ok(())
    }

    /// Binds an identifier to native InfiniBand addresses, of which a RoCE device has none: it can
    /// do nothing further. librdmacm asks whether that succeeds to learn what the interface is
    /// capable of.
    pub(super) fn bind_native(&mut self, id: u32) -> io::Result<()> {
        self.in_state(id, &[State::Idle])?.state = State::Bound;
        Ok(())
    }

    /// Takes a port, any if none is named. One that a program does not choose has to be free for
    /// TCP, too, if its connections are TCP's, as the program has no other to try. A socket keeps
    /// it.
    fn reserve(&mut self, id: u32, address: SocketAddr, is_stream: bool) -> io::Result<Reserved> {
        if address.port() != 0 {
            return Ok((address.port(), self.reserve_port(id, address)?, None));
        }
        let is_v6_only = self.id(id)?.is_ipv6_only;
        for _ in 0..ATTEMPTS {
            let (port, tcp) = if is_stream {
                let bound = exchange::bound(address, is_v6_only)?;
                (bound.local_addr()?.port(), Some(bound))
            } else {
                (random_port()?, None)
            };
            match self.reserve_port(id, with_port(address, port)) {
                Err(error) if error.raw_os_error() == Some(libc::EADDRINUSE) => {}
                other => return other.map(|reservation| (port, reservation, tcp)),
            }
        }
        Err(errno(libc::EADDRNOTAVAIL))
    }

    pub(super) fn reserve_port(
        &mut self,
        id: u32,
        address: SocketAddr,
    ) -> io::Result<Arc<Reservation>> {
        let entry = self.id(id)?;
        let (space, may_share, is_v6_only) =
            (entry.space, entry.may_share_port, entry.is_ipv6_only);
        if may_share {
            let sharing = self.ids.values().find_map(|other| {
                let is_same = other.space == space && other.source == Some(address);
                let may_share = other.may_share_port && other.state != State::Listening;
                other.reservation.clone().filter(|_| is_same && may_share)
            });
            if let Some(reservation) = sharing {
                return Ok(reservation);
            }
        }
        let covered = self.covered_by(address.ip(), is_v6_only);
        let taken = Reservation::take(space, address.port(), address.ip(), &covered)?;
        Ok(Arc::new(taken))
    }

    /// The addresses whose ports a binding to `address` would share.
    fn covered_by(&mut self, address: IpAddr, is_v6_only: bool) -> Vec<IpAddr> {
        let v4 = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let v6 = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        if !address.is_unspecified() {
            return if address.is_ipv4() {
                vec![v4, v6]
            } else {
                vec![v6]
            };
        }
        let with_v4 = address.is_ipv4() || !is_v6_only;
        let mut covered: Vec<IpAddr> = self
            .devices()
            .iter()
            .flat_map(|info| info.gids.iter().filter(|entry| entry.is_v2()))
            .map(|entry| entry.gid.to_ip())
            .filter(|ip| {
                if ip.is_ipv4() {
                    with_v4
                } else {
                    address.is_ipv6()
                }
            })
            .collect();
        if address.is_ipv4() {
            covered.push(v6);
        } else if with_v4 {
            covered.push(v4);
        }
        covered
    }

    /// The device that has an address.
    pub(super) fn device_with(&mut self, address: SocketAddr) -> Option<Bound> {
        let scope = match address {
            SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() => v6.scope_id(),
            _ => 0,
        };
        let gid = Gid::from(address.ip());
        // An address that was just added is not among those remembered.
        (0..2).find_map(|attempt| {
            if attempt > 0 {
                self.forget_devices();
            }
            self.devices().iter().find_map(|info| {
                let is_link = scope == 0 || info.ifindex == scope;
                let index = info
                    .gids
                    .iter()
                    .position(|entry| entry.is_v2() && entry.gid == gid)?;
                let gid_index = u8::try_from(index).ok().filter(|_| is_link)?;
                Some(Bound::new(info, gid_index))
            })
        })
    }

    /// Finds the own address, and with it the device, from which a peer is reached. Failure is an
    /// event.
    pub(super) fn resolve_address(
        &mut self,
        id: u32,
        source: Option<SocketAddr>,
        destination: SocketAddr,
    ) -> io::Result<()> {
        let entry = self.in_state(id, &[State::Idle, State::Bound])?;
        if let (State::Idle, Some(source)) = (entry.state, source)
            && !(source.ip().is_unspecified() && source.port() == 0)
        {
            self.bind(id, source)?;
        }
        let destination = here_if_unspecified(destination);
        let wanted = self.id(id)?.source;
        let outcome = route_source(wanted, destination).and_then(|ip| {
            let with_scope = match (ip, destination) {
                (IpAddr::V6(ip), SocketAddr::V6(to)) => {
                    std::net::SocketAddrV6::new(ip, 0, 0, to.scope_id()).into()
                }
                (ip, _) => SocketAddr::new(ip, 0),
            };
            self.device_with(with_scope)
                .map(|device| (with_scope, device))
                .ok_or_else(|| errno(libc::ENODEV))
        });
        match outcome {
            Ok((source, device)) => {
                let port = match wanted {
                    Some(wanted) => wanted.port(),
                    // Only told to the peer, never listened on: it need not be this process's
                    // alone.
                    None => random_port()?,
                };
                let entry = self.id(id)?;
                entry.source = Some(with_port(source, port));
                entry.destination = Some(destination);
                entry.device = Some(device);
                entry.state = State::AddrResolved;
                self.push(id, CmEventKind::AddrResolved, 0, CmParam::None);
            }
            Err(error) => {
                let status = -error.raw_os_error().unwrap_or(libc::EHOSTUNREACH);
                self.push(id, CmEventKind::AddrError, status, CmParam::None);
            }
        }
        Ok(())
    }

    /// With IP routes there is nothing to find: the kernel's routing table does it for every
    /// packet.
    pub(super) fn resolve_route(&mut self, id: u32) -> io::Result<()> {
        self.in_state(id, &[State::AddrResolved])?.state = State::RouteResolved;
        self.push(id, CmEventKind::RouteResolved, 0, CmParam::None);
        Ok(())
    }

    /// Joins a multicast group. Membership itself comes with attaching a queue pair; this finds its
    /// GID and Q_Key. Returns the group's number.
    pub(super) fn join(&mut self, id: u32, uid: u64, group: SocketAddr) -> io::Result<u32> {
        let states = [State::Bound, State::AddrResolved, State::RouteResolved];
        let entry = self.in_state(id, &states)?;
        let Some(device) = entry.device.clone().filter(|_| entry.is_datagram()) else {
            return Err(errno(libc::EINVAL));
        };
        let (file, qkey, traffic_class) = (entry.file, entry.qkey, entry.traffic_class);
        let address = CmAddress {
            dest_gid: Gid::from(group.ip()),
            source_gid_index: device.gid_index,
            traffic_class,
            hop_limit: CmAddress::HOP_LIMIT,
        };
        let number = self.fresh_number();
        let joined = Group {
            file,
            of: id,
            events_reported: 0,
        };
        self.groups.insert(number, joined);
        let param = DatagramParam {
            qp_num: Qpn::MULTICAST.get(),
            qkey,
            address: Some(address),
            private_data: Vec::new(),
        };
        self.push_to(
            file,
            CmEvent {
                uid,
                id: number,
                kind: CmEventKind::MulticastJoin,
                status: 0,
                param: CmParam::Datagram(Box::new(param)),
                of: id,
            },
        );
        Ok(number)
    }

    /// Leaves a multicast group. Returns how many events of it the program got.
    pub(super) fn leave(&mut self, file: u64, number: u32) -> io::Result<u32> {
        let is_theirs = self
            .groups
            .get(&number)
            .is_some_and(|group| group.file == file);
        let Some(group) = is_theirs.then(|| self.groups.remove(&number)).flatten() else {
            return Err(errno(libc::ENOENT));
        };
        if let Some(file) = self.files.get_mut(&file) {
            file.take(|event| event.kind == CmEventKind::MulticastJoin && event.id == number);
        }
        Ok(group.events_reported)
    }

    /// The devices there are, remembered for a moment: a program may resolve thousands of
    /// addresses.
    pub(super) fn devices(&mut self) -> &[Arc<DeviceInfo>] {
        const REMEMBER_NS: u64 = 200_000_000;
        let now_ns = crate::process::clock::now().as_nanos();
        let is_fresh = |(at_ns, _): &(u64, _)| now_ns.saturating_sub(*at_ns) < REMEMBER_NS;
        if !self.known_devices.as_ref().is_some_and(is_fresh) {
            let devices = crate::attach::list::list().unwrap_or_default();
            let devices = devices.into_iter().map(Arc::new).collect();
            self.known_devices = Some((now_ns, devices));
        }
        self.known_devices
            .as_ref()
            .map_or(&[], |(_, devices)| devices)
    }

    pub(super) fn forget_devices(&mut self) {
        self.known_devices = None;
    }
}

fn random_port() -> io::Result<u16> {
    let range = u32::from(EPHEMERAL.end - EPHEMERAL.start);
    let offset = random_u32().map_err(|_| errno(libc::EAGAIN))? % range;
    Ok(EPHEMERAL.start + u16::try_from(offset).unwrap_or(0))
}

/// Why no device has an address, as Linux says it: it is another host's, or of an interface without
/// a device.
fn without_device(address: SocketAddr) -> i32 {
    match UdpSocket::bind(with_port(address, 0)) {
        Ok(_) => libc::ENODEV,
        Err(_) => libc::EADDRNOTAVAIL,
    }
}

pub(super) fn with_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}

/// As with TCP, nowhere in particular is here.
fn here_if_unspecified(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}

/// The own address that the kernel would use towards `destination`.
fn route_source(wanted: Option<SocketAddr>, destination: SocketAddr) -> io::Result<IpAddr> {
    if let Some(wanted) = wanted.filter(|wanted| !wanted.ip().is_unspecified()) {
        return if wanted.is_ipv4() == destination.is_ipv4() {
            Ok(wanted.ip())
        } else {
            Err(errno(libc::EINVAL))
        };
    }
    let any: SocketAddr = if destination.is_ipv4() {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    } else {
        (Ipv6Addr::UNSPECIFIED, 0).into()
    };
    let socket = UdpSocket::bind(any)?;
    // Any port will do; 0 is refused by some kernels.
    socket.connect(with_port(destination, 9))?;
    Ok(socket.local_addr()?.ip())
}
