//! Which datagrams take the ring: classic BPF, the same for the packet socket, which takes them,
//! and for the UDP socket, which drops them.

use std::io;
use std::net::SocketAddrV4;
use std::ops::RangeInclusive;
use std::os::fd::BorrowedFd;

use libc::{
    BPF_ABS, BPF_ALU, BPF_AND, BPF_B, BPF_H, BPF_JEQ, BPF_JGE, BPF_JGT, BPF_JMP, BPF_K, BPF_LD,
    BPF_RET, BPF_W, SKF_AD_IFINDEX, SKF_AD_OFF, SKF_AD_PKTTYPE, SKF_AD_PROTOCOL, SKF_AD_VLAN_TAG,
    SKF_NET_OFF, SO_ATTACH_FILTER, SOL_SOCKET, sock_filter, sock_fprog,
};

use super::reach::Reach;
use super::reach::TTL;
use crate::sockopt;

/// The Ethernet header.
const ETHERNET_BYTES: u32 = 14;
/// The filter's "all of it".
const WHOLE: u32 = u32::MAX;

/// What takes the ring.
pub(super) struct Flow<'a> {
    pub(super) reach: &'a Reach,
    pub(super) ifindex: u32,
    pub(super) local: SocketAddrV4,
    /// How long IP packets are.
    pub(super) bytes: RangeInclusive<u16>,
}

/// What one field of a packet has to be.
struct Test {
    size: u32,
    at: u32,
    /// The bits that count.
    mask: u32,
    operator: u32,
    value: u32,
    /// It has not to be that.
    unless: bool,
}

impl Test {
    const fn new(size: u32, at: u32, operator: u32, value: u32) -> Self {
        Self {
            size,
            at,
            mask: u32::MAX,
            operator,
            value,
            unless: false,
        }
    }

    /// How many instructions it takes.
    const fn instructions(&self) -> usize {
        2 + (self.mask != u32::MAX) as usize
    }
}

impl Flow<'_> {
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
        if !self.reach.is_open() {
            return vec![statement(BPF_RET | BPF_K, others)];
        }
        let tests = self.tests(ip);
        let mut left: usize = tests.iter().map(Test::instructions).sum();
        let mut program = Vec::with_capacity(left + 2);
        for test in tests {
            program.push(statement(BPF_LD | test.size | BPF_ABS, test.at));
            if test.mask != u32::MAX {
                program.push(statement(BPF_ALU | BPF_AND | BPF_K, test.mask));
            }
            left -= test.instructions();
            // To the instruction behind "matches".
            let fails = left as u8 + 1;
            let (jt, jf) = if test.unless { (fails, 0) } else { (0, fails) };
            program.push(sock_filter {
                code: (BPF_JMP | test.operator | BPF_K) as u16,
                jt,
                jf,
                k: test.value,
            });
        }
        program.push(statement(BPF_RET | BPF_K, matches));
        program.push(statement(BPF_RET | BPF_K, others));
        program
    }

    fn tests(&self, ip: u32) -> Vec<Test> {
        let extra = |what: i32| (SKF_AD_OFF + what).cast_unsigned();
        let equal = |size, at, value| Test::new(size, at, BPF_JEQ, value);
        let (shortest, longest) = (*self.bytes.start(), *self.bytes.end());
        let mut tests = Vec::new();
        if shortest > 0 {
            // First, for most packets fail here.
            tests.push(Test::new(BPF_H, ip + 2, BPF_JGE, u32::from(shortest)));
        }
        tests.extend([
            equal(BPF_H, extra(SKF_AD_PROTOCOL), libc::ETH_P_IP as u32),
            // Version 4, no options.
            equal(BPF_B, ip, 0x45),
            equal(BPF_B, ip + 9, libc::IPPROTO_UDP as u32),
            equal(BPF_H, ip + 22, u32::from(self.local.port())),
            equal(BPF_W, ip + 16, self.local.ip().to_bits()),
            // As `Sender` writes it, and no router passed it (RFC 5082).
            equal(BPF_B, ip + 8, u32::from(TTL)),
            // No fragment, nor made of fragments: those have lost "don't fragment".
            equal(BPF_H, ip + 6, 0x4000),
            equal(BPF_W, extra(SKF_AD_IFINDEX), self.ifindex),
            // Another host's, in a network that floods, or to all.
            equal(BPF_W, extra(SKF_AD_PKTTYPE), u32::from(PACKET_HOST)),
            // In no virtual network. A tag that has a priority alone is none to the kernel either.
            Test {
                mask: VLAN_ID,
                ..equal(BPF_W, extra(SKF_AD_VLAN_TAG), 0)
            },
            Test {
                unless: true,
                ..Test::new(BPF_H, ip + 2, BPF_JGT, u32::from(longest))
            },
        ]);
        // Where the kernel would have it come from.
        let source = ip + 12;
        let prefix = self.reach.prefix();
        tests.push(Test {
            mask: prefix.mask(),
            ..equal(BPF_W, source, prefix.address())
        });
        tests.extend(self.reach.excluded().iter().map(|net| Test {
            mask: net.mask(),
            unless: true,
            ..equal(BPF_W, source, net.address())
        }));
        tests
    }
}

/// The bits of an 802.1Q tag that name the virtual network; 0 is none.
const VLAN_ID: u32 = 0x0fff;
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
pub(crate) fn attach(fd: BorrowedFd<'_>, program: &[sock_filter]) -> io::Result<()> {
    let program = sock_fprog {
        len: program.len() as u16,
        filter: program.as_ptr().cast_mut(),
    };
    sockopt::set(fd, SOL_SOCKET, SO_ATTACH_FILTER, program)
}
