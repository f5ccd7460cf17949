//! Which datagrams take the ring: classic BPF, the same for the packet socket, which takes them, and for the UDP
//! socket, which drops them.

use std::io;
use std::net::SocketAddrV4;
use std::ops::RangeInclusive;
use std::os::fd::BorrowedFd;

use libc::{
    BPF_ABS, BPF_B, BPF_H, BPF_JEQ, BPF_JGE, BPF_JGT, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W,
    SKF_AD_IFINDEX, SKF_AD_OFF, SKF_AD_PKTTYPE, SKF_AD_PROTOCOL, SKF_AD_VLAN_TAG_PRESENT,
    SKF_NET_OFF, SO_ATTACH_FILTER, SOL_SOCKET, sock_filter, sock_fprog,
};

use super::sender::TTL;
use crate::sockopt;

/// The Ethernet header.
const ETHERNET_BYTES: u32 = 14;
/// The filter's "all of it".
const WHOLE: u32 = u32::MAX;

/// What takes the ring.
pub(super) struct Flow {
    pub(super) ifindex: u32,
    pub(super) local: SocketAddrV4,
    /// How long IP packets are.
    pub(super) bytes: RangeInclusive<u16>,
}

impl Flow {
    /// Passes the flow's Ethernet frames.
    pub(super) fn accepts(&self) -> Vec<sock_filter> {
        self.program(ETHERNET_BYTES, WHOLE, 0)
    }

    /// Passes all of a UDP socket's datagrams but the flow's.
    pub(super) fn rejects(&self) -> Vec<sock_filter> {
        self.program(SKF_NET_OFF.cast_unsigned(), 0, WHOLE)
    }

    /// The program; `ip` is where the IP header is.
    fn program(&self, ip: u32, matches: u32, others: u32) -> Vec<sock_filter> {
        let extra = |what: i32| (SKF_AD_OFF + what).cast_unsigned();
        let equal = [
            (BPF_H, extra(SKF_AD_PROTOCOL), libc::ETH_P_IP as u32),
            // Version 4, no options.
            (BPF_B, ip, 0x45),
            (BPF_B, ip + 9, libc::IPPROTO_UDP as u32),
            (BPF_H, ip + 22, u32::from(self.local.port())),
            (BPF_W, ip + 16, self.local.ip().to_bits()),
            // As `Sender` writes it, and no router passed it (RFC 5082).
            (BPF_B, ip + 8, u32::from(TTL)),
            // No fragment, nor made of fragments: those have lost "don't fragment".
            (BPF_H, ip + 6, 0x4000),
            (BPF_W, extra(SKF_AD_IFINDEX), self.ifindex),
            (BPF_W, extra(SKF_AD_PKTTYPE), u32::from(PACKET_HOST)),
            (BPF_W, extra(SKF_AD_VLAN_TAG_PRESENT), 0),
        ];
        let (shortest, longest) = (*self.bytes.start(), *self.bytes.end());
        let mut program = Vec::with_capacity(2 * equal.len() + 6);
        // Instructions from a comparison to the end of the last one.
        let mut left = 2 * (equal.len() as u8 + 1 + u8::from(shortest > 0));
        let mut compare = |(size, at, operator, value, unless): (u32, u32, u32, u32, bool)| {
            program.push(statement(BPF_LD | size | BPF_ABS, at));
            left -= 2;
            let (jt, jf) = if unless { (left + 1, 0) } else { (0, left + 1) };
            program.push(sock_filter {
                code: (BPF_JMP | operator | BPF_K) as u16,
                jt,
                jf,
                k: value,
            });
        };
        if shortest > 0 {
            // First, for most packets fail here.
            compare((BPF_H, ip + 2, BPF_JGE, u32::from(shortest), false));
        }
        for (size, at, value) in equal {
            compare((size, at, BPF_JEQ, value, false));
        }
        compare((BPF_H, ip + 2, BPF_JGT, u32::from(longest), true));
        program.push(statement(BPF_RET | BPF_K, matches));
        program.push(statement(BPF_RET | BPF_K, others));
        program
    }
}

/// PACKET_HOST of linux/if_packet.h: to this host.
const PACKET_HOST: u8 = 0;

fn statement(code: u32, k: u32) -> sock_filter {
    sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    }
}

/// Lets a socket receive only what `program` passes.
pub(super) fn attach(fd: BorrowedFd<'_>, program: &[sock_filter]) -> io::Result<()> {
    let program = sock_fprog {
        len: program.len() as u16,
        filter: program.as_ptr().cast_mut(),
    };
    sockopt::set(fd, SOL_SOCKET, SO_ATTACH_FILTER, program)
}
