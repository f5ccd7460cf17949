//! What a kernel with RDMA answers on a netlink socket (<rdma/rdma_netlink.h>, `RDMA_NL_NLDEV`):
//! its devices, their ports, and how it divides them among network namespaces. Requests in, answers
//! out; [`crate::netlink`] has the sockets.
//!
//! Not here: what the processes have made of the devices (`rdma resource`, `rdma statistic`).
//! Devices of ours live in their processes, and `urxe qp` and `urxe stat` ask those.
use urxe_device::{DeviceInfo, DeviceKind};

use crate::device;
use crate::errno::Errno;
use crate::kind;
use crate::port::PORT;
use crate::query::{PHYSICAL_DISABLED, PHYSICAL_LINK_UP};

/// `RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command)`.
const fn nldev(command: u16) -> u16 {
    5 << 10 | command
}

/// `RDMA_NLDEV_CMD_GET`, `_PORT_GET` and `_SYS_GET`.
const GET: u16 = nldev(1);
const PORT_GET: u16 = nldev(5);
const SYS_GET: u16 = nldev(6);

/// `RDMA_NLDEV_ATTR_*`.
mod attribute {
    pub(super) const DEV_INDEX: u16 = 1;
    pub(super) const DEV_NAME: u16 = 2;
    pub(super) const PORT_INDEX: u16 = 3;
    pub(super) const CAP_FLAGS: u16 = 4;
    pub(super) const FW_VERSION: u16 = 5;
    pub(super) const NODE_GUID: u16 = 6;
    pub(super) const SYS_IMAGE_GUID: u16 = 7;
    pub(super) const PORT_STATE: u16 = 12;
    pub(super) const PORT_PHYS_STATE: u16 = 13;
    pub(super) const DEV_NODE_TYPE: u16 = 14;
    pub(super) const NDEV_INDEX: u16 = 50;
    pub(super) const NDEV_NAME: u16 = 51;
    pub(super) const NETNS_MODE: u16 = 66;
    pub(super) const DEV_PROTOCOL: u16 = 67;
    pub(super) const DEV_DIM: u16 = 84;
    pub(super) const COPY_ON_FORK: u16 = 93;
}

/// A channel adapter (`RDMA_NODE_IB_CA`).
const NODE_CA: u8 = 1;
/// An iWARP adapter (`RDMA_NODE_RNIC`).
const NODE_RNIC: u8 = 4;
/// A device is of the network namespace that its interface is in (`rdma system`: "exclusive").
const NETNS_EXCLUSIVE: u8 = 0;
/// Port states of IBTA 14.2.5.6.
const DOWN: u8 = 1;
const ACTIVE: u8 = 4;

/// Bytes of a message's header (`struct nlmsghdr`), and of an attribute's (`struct nlattr`).
const HEADER: usize = 16;
const ATTRIBUTE_HEADER: usize = 4;

const fn aligned(length: usize) -> usize {
    length.next_multiple_of(4)
}

/// A message that is being written.
struct Message(Vec<u8>);

impl Message {
    /// The answer of type `kind` to `request`. `flags` are as in `struct nlmsghdr`.
    fn to(request: &Request<'_>, kind: u16, flags: u16) -> Self {
        let mut bytes = vec![0; 4];
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend(request.sequence.to_ne_bytes());
        bytes.extend(request.port.to_ne_bytes());
        Self(bytes)
    }

    fn put(&mut self, attribute: u16, value: &[u8]) {
        let length = u16::try_from(ATTRIBUTE_HEADER + value.len()).unwrap_or(u16::MAX);
        self.0.extend(length.to_ne_bytes());
        self.0.extend(attribute.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(aligned(self.0.len()), 0);
    }

    fn put_text(&mut self, attribute: u16, text: &str) {
        self.put(attribute, &[text.as_bytes(), &[0]].concat());
    }

    fn done(mut self) -> Vec<u8> {
        let length = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        self.0[..4].copy_from_slice(&length.to_ne_bytes());
        self.0
    }
}

/// A message of the program.
struct Request<'a> {
    kind: u16,
    flags: u16,
    sequence: u32,
    port: u32,
    attributes: &'a [u8],
}

impl<'a> Request<'a> {
    /// The first message in `bytes`, and those after it. None if it is cut off.
    fn first(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let length = usize::try_from(word(bytes, 0)?).ok()?;
        let request = Self {
            kind: half(bytes, 4)?,
            flags: half(bytes, 6)?,
            sequence: word(bytes, 8)?,
            port: word(bytes, 12)?,
            attributes: bytes.get(HEADER..length)?,
        };
        Some((request, bytes.get(aligned(length)..).unwrap_or(&[])))
    }

    fn has(&self, flag: i32) -> bool {
        i32::from(self.flags) & flag != 0
    }

    fn is_dump(&self) -> bool {
        self.has(libc::NLM_F_DUMP)
    }

    /// The number that an attribute holds.
    fn number(&self, attribute: u16) -> Option<u32> {
        let mut rest = self.attributes;
        loop {
            let length = usize::from(half(rest, 0)?).max(ATTRIBUTE_HEADER);
            if half(rest, 2)? == attribute {
                return word(rest.get(..length)?, ATTRIBUTE_HEADER);
            }
            rest = rest.get(aligned(length)..)?;
        }
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    bytes.try_into().ok().map(u32::from_ne_bytes)
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at.checked_add(2)?)?;
    bytes.try_into().ok().map(u16::from_ne_bytes)
}

/// The answers to the requests in a datagram, each a datagram, given the devices there are.
pub(crate) fn answers(mut datagram: &[u8], devices: &[DeviceInfo]) -> Vec<Vec<u8>> {
    let mut answers = Vec::new();
    while let Some((request, rest)) = Request::first(datagram) {
        datagram = rest;
        match answer(&request, devices) {
            Ok(found) => {
                answers.extend(found);
                if request.is_dump() {
                    answers.push(end(&request, libc::NLMSG_DONE, libc::NLM_F_MULTI, 0));
                } else if request.has(libc::NLM_F_ACK) {
                    answers.push(end(&request, libc::NLMSG_ERROR, 0, 0));
                }
            }
            Err(errno) => answers.push(end(&request, libc::NLMSG_ERROR, 0, -errno.0)),
        }
    }
    answers
}

/// The last answer to a request. That of an error repeats the header of the request.
fn end(request: &Request<'_>, kind: i32, flags: i32, status: i32) -> Vec<u8> {
    let mut message = Message::to(request, kind as u16, flags as u16);
    message.0.extend(status.to_ne_bytes());
    if kind == libc::NLMSG_ERROR {
        let mut about = Message::to(request, request.kind, request.flags).0;
        let length = u32::try_from(HEADER + request.attributes.len()).unwrap_or(0);
        about[..4].copy_from_slice(&length.to_ne_bytes());
        message.0.extend(about);
        message.0.extend(request.attributes);
    }
    message.done()
}

fn answer(request: &Request<'_>, devices: &[DeviceInfo]) -> Result<Vec<Vec<u8>>, Errno> {
    let index = request.number(attribute::DEV_INDEX);
    let asked = || {
        let is_it = |info: &&DeviceInfo| index == Some(device::number(info).cast_unsigned());
        devices.iter().find(is_it).ok_or(Errno::INVAL)
    };
    let flags = if request.is_dump() {
        libc::NLM_F_MULTI
    } else {
        0
    };
    let message = || Message::to(request, request.kind, flags as u16);
    match request.kind {
        GET if request.is_dump() => {
            let all = devices.iter().map(|info| put_device(message(), info));
            Ok(all.collect())
        }
        GET => Ok(vec![put_device(message(), asked()?)]),
        PORT_GET => {
            let port = request.number(attribute::PORT_INDEX);
            if !request.is_dump() && port != Some(PORT.into()) {
                return Err(Errno::INVAL);
            }
            Ok(vec![put_port(message(), asked()?)])
        }
        SYS_GET => {
            let mut message = message();
            message.put(attribute::NETNS_MODE, &[NETNS_EXCLUSIVE]);
            message.put(attribute::COPY_ON_FORK, &[1]);
            Ok(vec![message.done()])
        }
        _ => Err(Errno::OPNOTSUPP),
    }
}

fn put_names(message: &mut Message, info: &DeviceInfo) {
    message.put(
        attribute::DEV_INDEX,
        &device::number(info).cast_unsigned().to_ne_bytes(),
    );
    message.put_text(attribute::DEV_NAME, &info.name);
    message.put(attribute::PORT_INDEX, &u32::from(PORT).to_ne_bytes());
}

fn put_device(mut message: Message, info: &DeviceInfo) -> Vec<u8> {
    let guid = u64::from_be_bytes(info.guid).to_ne_bytes();
    put_names(&mut message, info);
    message.put(
        attribute::CAP_FLAGS,
        &u64::from(kind::cap_flags(info.kind)).to_ne_bytes(),
    );
    message.put_text(attribute::FW_VERSION, env!("CARGO_PKG_VERSION"));
    message.put(attribute::NODE_GUID, &guid);
    message.put(attribute::SYS_IMAGE_GUID, &guid);
    let node_type = match info.kind {
        DeviceKind::Roce => NODE_CA,
        DeviceKind::Iwarp => NODE_RNIC,
    };
    message.put(attribute::DEV_NODE_TYPE, &[node_type]);
    message.put(attribute::DEV_DIM, &[0]);
    message.put_text(attribute::DEV_PROTOCOL, kind::names(info.kind).1);
    message.done()
}

fn put_port(mut message: Message, info: &DeviceInfo) -> Vec<u8> {
    let (state, physical) = if info.is_up {
        (ACTIVE, PHYSICAL_LINK_UP)
    } else {
        (DOWN, PHYSICAL_DISABLED)
    };
    put_names(&mut message, info);
    message.put(attribute::PORT_STATE, &[state]);
    message.put(attribute::PORT_PHYS_STATE, &[physical]);
    message.put(attribute::NDEV_INDEX, &info.ifindex.to_ne_bytes());
    message.put_text(attribute::NDEV_NAME, &info.netdev);
    message.done()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn eth0() -> DeviceInfo {
        DeviceInfo {
            name: "urxe_eth0".into(),
            kind: DeviceKind::Roce,
            netdev: "eth0".into(),
            ifindex: 7,
            netdev_mtu_bytes: 1500,
            within_host: false,
            is_up: true,
            mac: None,
            guid: [0, 1, 2, 3, 4, 5, 6, 7],
            gids: vec![],
        }
    }

    /// A request with number 5, for these attributes.
    fn request(kind: u16, flags: i32, attributes: &[(u16, u32)]) -> Vec<u8> {
        let from = Request {
            kind,
            flags: 0,
            sequence: 5,
            port: 77,
            attributes: &[],
        };
        let mut message = Message::to(&from, kind, (flags | libc::NLM_F_REQUEST) as u16);
        for (name, value) in attributes {
            message.put(*name, &value.to_ne_bytes());
        }
        message.done()
    }

    fn kinds(answers: &[Vec<u8>]) -> Vec<i32> {
        let kind = |answer: &Vec<u8>| half(answer, 4).map_or(-1, i32::from);
        answers.iter().map(kind).collect()
    }

    fn status(answer: &[u8]) -> i32 {
        word(answer, HEADER).expect("a status").cast_signed()
    }

    #[test]
    fn a_dump_names_every_device_and_ends() {
        let found = answers(&request(GET, libc::NLM_F_DUMP, &[]), &[eth0(), eth0()]);
        assert_eq!(kinds(&found), [GET.into(), GET.into(), libc::NLMSG_DONE]);
        let (device, _) = Request::first(&found[0]).expect("a message");
        assert_eq!((device.sequence, device.port), (5, 77));
        assert!(device.has(libc::NLM_F_MULTI));
        assert_eq!(device.number(attribute::DEV_INDEX), Some(0x0100_0007));
        assert!(found[0].windows(10).any(|part| part == b"urxe_eth0\0"));
    }

    #[test]
    fn one_device_is_found_by_its_number_and_acknowledged() {
        let by = |index| request(GET, libc::NLM_F_ACK, &[(attribute::DEV_INDEX, index)]);
        let found = answers(&by(0x0100_0007), &[eth0()]);
        assert_eq!(kinds(&found), [GET.into(), libc::NLMSG_ERROR]);
        assert_eq!(status(&found[1]), 0);
        let found = answers(&by(3), &[eth0()]);
        assert_eq!(kinds(&found), [libc::NLMSG_ERROR]);
        assert_eq!(status(&found[0]), -libc::EINVAL);
    }

    #[test]
    fn what_is_not_answered_is_refused() {
        let found = answers(&request(nldev(10), libc::NLM_F_DUMP, &[]), &[eth0()]);
        assert_eq!(kinds(&found), [libc::NLMSG_ERROR]);
        assert_eq!(status(&found[0]), -libc::EOPNOTSUPP);
    }

    #[test]
    fn nothing_that_a_program_sends_does_harm() {
        let whole = request(PORT_GET, 0, &[(attribute::DEV_INDEX, 0x0100_0007)]);
        for length in 0..whole.len() {
            assert!(answers(&whole[..length], &[eth0()]).is_empty(), "{length}");
        }
        for at in 0..whole.len() {
            for byte in [0, 1, 3, 0x80, 0xff] {
                let mut bad = whole.clone();
                bad[at] = byte;
                assert!(answers(&bad, &[eth0()]).len() <= 2);
            }
        }
    }
}
