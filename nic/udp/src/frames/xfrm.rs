//! IPsec policies: what they are about, by NETLINK_XFRM (linux/xfrm.h; ip-xfrm(8)).
//!
//! Only a process that has CAP_NET_ADMIN may look. One that has not finds out of each neighbour
//! what the kernel does with a packet to it: see [`super::neighbours`].

use std::io;
use std::net::Ipv4Addr;

use netlink_sys::protocols::NETLINK_XFRM;
use netlink_sys::{Socket as NetlinkSocket, SocketAddr as NetlinkAddress};

use super::net::Net;

/// linux/netlink.h.
const HEADER_BYTES: usize = 16;
const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_DUMP: u16 = 0x300;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// linux/xfrm.h.
const NEW_POLICY: u16 = 0x13;
const GET_POLICY: u16 = 0x15;
const GET_DEFAULT: u16 = 0x28;
/// `struct xfrm_userpolicy_id` and `struct xfrm_userpolicy_default`.
const POLICY_ID_BYTES: usize = 64;
const DEFAULT_BYTES: usize = 3;
/// In `struct xfrm_userpolicy_info`, which begins with the selector's two addresses of 16 bytes.
const SOURCE_AT: usize = 16;
const FAMILY_AT: usize = 40;
const DESTINATION_BITS_AT: usize = 42;
const SOURCE_BITS_AT: usize = 43;
const DIRECTION_AT: usize = 160;
const DIRECTION_IN: u8 = 0;
const DIRECTION_OUT: u8 = 1;
const DEFAULT_BLOCK: u8 = 1;

/// Packets between these have something done to them, or are forbidden, or are excepted from that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Policy {
    /// This host's end.
    pub(super) ours: Net,
    /// The other one.
    pub(super) theirs: Net,
}

/// Those of the network namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Policies {
    pub(super) all: Vec<Policy>,
    /// What none is about is forbidden.
    pub(super) blocks_by_default: bool,
}

impl Policies {
    /// Those that there are, as far as the process may see them; none in a kernel without IPsec.
    pub(super) fn look() -> io::Result<Self> {
        match Self::try_look() {
            Err(error) => match error.raw_os_error() {
                Some(libc::EPERM | libc::EPROTONOSUPPORT | libc::EAFNOSUPPORT) => {
                    Ok(Self::default())
                }
                _ => Err(error),
            },
            found => found,
        }
    }

    fn try_look() -> io::Result<Self> {
        let mut socket = NetlinkSocket::new(NETLINK_XFRM)?;
        socket.bind_auto()?;
        socket.connect(&NetlinkAddress::new(0, 0))?;
        let mut policies = Self::default();
        ask(
            &socket,
            GET_POLICY,
            NLM_F_DUMP,
            POLICY_ID_BYTES,
            |kind, payload| {
                if kind == NEW_POLICY {
                    policies.all.extend(policy(payload));
                }
                false
            },
        )?;
        let blocks = ask(&socket, GET_DEFAULT, 0, DEFAULT_BYTES, |kind, payload| {
            // Inward, forwarded, outward.
            if kind == GET_DEFAULT
                && let [inward, _, outward, ..] = payload
            {
                policies.blocks_by_default = [inward, outward].contains(&&DEFAULT_BLOCK);
            }
            true
        });
        match blocks.as_ref().err().and_then(io::Error::raw_os_error) {
            // Before Linux 5.15 there is no such choice.
            Some(libc::EINVAL) => {}
            _ => blocks?,
        }
        Ok(policies)
    }
}

/// Asks, with a payload of zeros, and hands over the answers until `each` says that it was the
/// last, or the kernel does.
fn ask(
    socket: &NetlinkSocket,
    kind: u16,
    flags: u16,
    payload_bytes: usize,
    mut each: impl FnMut(u16, &[u8]) -> bool,
) -> io::Result<()> {
    let mut request = vec![0; HEADER_BYTES + payload_bytes];
    let length = request.len() as u32;
    request[..4].copy_from_slice(&length.to_ne_bytes());
    request[4..6].copy_from_slice(&kind.to_ne_bytes());
    request[6..8].copy_from_slice(&(NLM_F_REQUEST | flags).to_ne_bytes());
    socket.send(&request, 0)?;
    loop {
        let (datagram, _) = socket.recv_from_full()?;
        let mut rest = datagram.as_slice();
        while let Some((kind, payload, next)) = message(rest) {
            match kind {
                NLMSG_DONE => return Ok(()),
                NLMSG_ERROR => {
                    let code = payload
                        .first_chunk()
                        .map_or(0, |raw| i32::from_ne_bytes(*raw));
                    return match code {
                        0 => Ok(()),
                        code => Err(io::Error::from_raw_os_error(-code)),
                    };
                }
                kind if each(kind, payload) => return Ok(()),
                _ => {}
            }
            rest = next;
        }
    }
}

/// The first message of several: its type, its payload, and the others.
fn message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = u32::from_ne_bytes(*bytes.first_chunk()?) as usize;
    let kind = u16::from_ne_bytes([*bytes.get(4)?, *bytes.get(5)?]);
    let payload = bytes.get(HEADER_BYTES..length)?;
    // The next one begins at a multiple of 4.
    let next = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((kind, payload, next))
}

/// What a policy is about, unless that is nothing here: IPv6, or packets for others.
fn policy(info: &[u8]) -> Option<Policy> {
    let family = u16::from_ne_bytes([*info.get(FAMILY_AT)?, *info.get(FAMILY_AT + 1)?]);
    if i32::from(family) == libc::AF_INET6 {
        return None;
    }
    let net = |at: usize, bits_at: usize| {
        let address: [u8; 4] = *info.get(at..)?.first_chunk()?;
        Some(Net::new(Ipv4Addr::from(address), *info.get(bits_at)?))
    };
    let destination = net(0, DESTINATION_BITS_AT)?;
    let source = net(SOURCE_AT, SOURCE_BITS_AT)?;
    let (ours, theirs) = match *info.get(DIRECTION_AT)? {
        DIRECTION_IN => (destination, source),
        DIRECTION_OUT => (source, destination),
        _ => return None,
    };
    Some(Policy { ours, theirs })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(family: i32, direction: u8) -> Vec<u8> {
        let mut info = vec![0; 168];
        info[..4].copy_from_slice(&[10, 9, 0, 2]);
        info[SOURCE_AT..SOURCE_AT + 4].copy_from_slice(&[10, 9, 0, 1]);
        info[FAMILY_AT..FAMILY_AT + 2].copy_from_slice(&(family as u16).to_ne_bytes());
        info[DESTINATION_BITS_AT] = 32;
        info[SOURCE_BITS_AT] = 24;
        info[DIRECTION_AT] = direction;
        info
    }

    #[test]
    fn a_policy_is_about_two_ends() {
        let (two, network) = (
            Net::new(Ipv4Addr::new(10, 9, 0, 2), 32),
            Net::new(Ipv4Addr::new(10, 9, 0, 0), 24),
        );
        let of = |ours, theirs| Some(Policy { ours, theirs });
        assert_eq!(
            policy(&info(libc::AF_INET, DIRECTION_OUT)),
            of(network, two)
        );
        assert_eq!(policy(&info(libc::AF_INET, DIRECTION_IN)), of(two, network));
        assert_eq!(
            policy(&info(libc::AF_UNSPEC, DIRECTION_IN)),
            of(two, network)
        );
        assert_eq!(policy(&info(libc::AF_INET, 2)), None, "forwarded");
        assert_eq!(policy(&info(libc::AF_INET6, DIRECTION_OUT)), None);
        assert_eq!(policy(&info(libc::AF_INET, DIRECTION_OUT)[..160]), None);
    }

    #[test]
    fn messages_stand_one_behind_the_other() {
        let mut bytes = vec![17, 0, 0, 0, 3, 0, 0, 0];
        bytes.resize(20, 7);
        bytes.extend([16, 0, 0, 0, 2, 0]);
        bytes.resize(36, 0);
        let (kind, payload, rest) = message(&bytes).unwrap();
        assert_eq!((kind, payload), (3, &[7][..]));
        let (kind, payload, rest) = message(rest).unwrap();
        assert_eq!((kind, payload), (2, &[][..]));
        assert_eq!(message(rest), None);
        assert_eq!(message(&[200, 0, 0, 0, 3, 0]), None);
    }
}
