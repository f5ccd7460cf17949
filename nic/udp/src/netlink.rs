//! Tables of the kernel, by rtnetlink(7).

use std::io;

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket as NetlinkSocket, SocketAddr as NetlinkAddress};

/// NLM_F_DUMP_INTR of linux/netlink.h (Linux 3.1): something changed during the dump, which is
/// therefore inconsistent.
const NLM_F_DUMP_INTR: u16 = 0x10;
/// Dumps to try until one is consistent. On a machine that changes its interfaces faster than this,
/// any answer is out of date.
const ATTEMPTS: usize = 8;

/// A conversation with rtnetlink.
pub(crate) struct Netlink {
    socket: NetlinkSocket,
}

impl Netlink {
    pub(crate) fn open() -> io::Result<Self> {
        let mut socket = NetlinkSocket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&NetlinkAddress::new(0, 0))?;
        Ok(Self { socket })
    }

    /// Asks for a table and hands over its rows once the table is known to be consistent, or after
    /// the last attempt.
    pub(crate) fn dump(
        &self,
        request: RouteNetlinkMessage,
        mut each: impl FnMut(RouteNetlinkMessage),
    ) -> io::Result<()> {
        for attempt in 1..=ATTEMPTS {
            let (rows, consistent) = self.dump_once(request.clone(), attempt as u32)?;
            if consistent || attempt == ATTEMPTS {
                rows.into_iter().for_each(&mut each);
                return Ok(());
            }
        }
        Ok(())
    }

    fn dump_once(
        &self,
        request: RouteNetlinkMessage,
        sequence: u32,
    ) -> io::Result<(Vec<RouteNetlinkMessage>, bool)> {
        let mut message =
            NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::from(request));
        message.header.flags = NLM_F_DUMP | NLM_F_REQUEST;
        message.header.sequence_number = sequence;
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        let (mut rows, mut consistent) = (Vec::new(), true);
        loop {
            let (datagram, _) = self.socket.recv_from_full()?;
            let mut rest = datagram.as_slice();
            while !rest.is_empty() {
                let reply =
                    NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest).map_err(|error| {
                        io::Error::new(io::ErrorKind::InvalidData, format!("rtnetlink: {error}"))
                    })?;
                consistent &= reply.header.flags & NLM_F_DUMP_INTR == 0;
                // Messages start at multiples of NLMSG_ALIGNTO, 4 (linux/netlink.h).
                let length = (reply.header.length as usize).next_multiple_of(4).max(16);
                rest = rest.get(length..).unwrap_or_default();
                match reply.payload {
                    NetlinkPayload::InnerMessage(row) => rows.push(row),
                    NetlinkPayload::Done(_) => return Ok((rows, consistent)),
                    NetlinkPayload::Error(error) => return Err(error.to_io()),
                    _ => {}
                }
            }
        }
    }
}
