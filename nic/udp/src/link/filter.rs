//! Which frames a socket takes: classic BPF.

use std::net::IpAddr;

use libc::{
    BPF_ABS, BPF_ALU, BPF_AND, BPF_B, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, SKF_AD_OFF,
    SKF_AD_PKTTYPE, SKF_AD_VLAN_TAG, sock_filter,
};

use super::Selector;
use super::header::{ETHERNET_BYTES, HEADER_BYTES, Kind, bits_of};

/// The bits of an 802.1Q tag that name the virtual network; 0 is none.
const VLAN_ID: u32 = 0x0fff;
/// PACKET_HOST of linux/if_packet.h: to this host.
const PACKET_HOST: u32 = 0;

/// Passes frames for `local`, of those that the selector chooses.
pub(super) fn program(kind: Kind, local: IpAddr, selector: Selector) -> Vec<sock_filter> {
    let route = ETHERNET_BYTES as u32;
    let extra = |what: i32| (SKF_AD_OFF + what).cast_unsigned();
    // Size, where, which bits count, what they have to be.
    let mut tests = vec![
        (
            BPF_W,
            HEADER_BYTES as u32 + selector.offset_bytes,
            selector.mask,
            selector.value,
        ),
        (BPF_B, route, 0xf0, 0x60),
        (BPF_B, route + 6, u32::MAX, kind.next_header.into()),
        (BPF_W, extra(SKF_AD_PKTTYPE), u32::MAX, PACKET_HOST),
        (BPF_W, extra(SKF_AD_VLAN_TAG), VLAN_ID, 0),
    ];
    let bits = bits_of(local);
    let words = bits.as_chunks().0.iter().zip([24, 28, 32, 36]);
    tests.extend(words.map(|(word, at)| (BPF_W, route + at, u32::MAX, u32::from_be_bytes(*word))));
    let mut program = Vec::with_capacity(3 * tests.len() + 2);
    for (left, (size, at, mask, value)) in (0..tests.len()).rev().zip(tests) {
        program.push(statement(BPF_LD | size | BPF_ABS, at));
        program.push(statement(BPF_ALU | BPF_AND | BPF_K, mask));
        program.push(sock_filter {
            code: (BPF_JMP | BPF_JEQ | BPF_K) as u16,
            jt: 0,
            // Past the other tests and "all of it".
            jf: 3 * left as u8 + 1,
            k: value,
        });
    }
    program.push(statement(BPF_RET | BPF_K, u32::MAX));
    program.push(statement(BPF_RET | BPF_K, 0));
    program
}

fn statement(code: u32, k: u32) -> sock_filter {
    sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    }
}
