//! How fast hops could be at most: a loop that does nothing but what every hop of a packet has to.
//!
//!     cargo run --release -p urxe-virtual --example bare_hop -- 6144 100000
//!
//! Each hop takes an event off a queue, reads the packet and the port that it came to, chooses
//! another port, notes in the ports and in the packet that it passed, and schedules an event. There
//! is no order to keep, as all hops take as long, and there are no hosts and no protocol. Sizes are
//! those of the simulator: an event has 16 bytes, a packet 32, a port 128.
//! `docs/simulator-speed.md` holds the simulator against this.

use std::collections::VecDeque;
use std::time::Instant;

use anyhow::{Context, Result};

const HOPS: u64 = 20_000_000;
const DELAY_PS: u64 = 800_000;

#[derive(Clone, Copy)]
#[repr(align(32))]
struct Packet {
    tail_at: u64,
    flow: u64,
    ingress: u32,
    bytes: u32,
}

#[derive(Clone)]
#[repr(align(128))]
struct Port {
    out: [u64; 8],
    into: [u64; 8],
}

/// The finaliser of splitmix64, by which the simulator chooses ways.
const fn mix(value: u64) -> u64 {
    let z = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |what| -> Result<u64> {
        let text = arguments.next();
        let text = text.with_context(|| format!("two numbers are needed: {what} is missing"))?;
        text.parse()
            .with_context(|| format!("{text} is no number of {what}"))
    };
    let (ports, packets) = (number("ports")?, number("packets under way")?);
    let port = Port {
        out: [0; 8],
        into: [0; 8],
    };
    let mut at_ports = vec![port; usize::try_from(ports)?];
    let mut pool: Vec<Packet> = (0..packets)
        .map(|id| Packet {
            tail_at: 0,
            flow: mix(id),
            ingress: 0,
            bytes: 1_106,
        })
        .collect();
    // Packets that follow each other are not neighbours in memory.
    let mut order: Vec<u64> = (0..packets).collect();
    order.sort_by_key(|id| mix(*id));
    let mut events: VecDeque<(u64, u64)> = order
        .iter()
        .map(|id| (0, ((mix(*id) % ports) << 32) | id))
        .collect();
    let started = Instant::now();
    for _ in 0..HOPS {
        let (at, event) = events.pop_front().context("there are no packets")?;
        let packet = &mut pool[(event & u64::from(u32::MAX)) as usize];
        let ingress = event >> 32;
        let egress = ((mix(packet.flow ^ ingress) >> 32) * ports) >> 32;
        at_ports[ingress as usize].into[0] += u64::from(packet.bytes);
        let out = &mut at_ports[egress as usize];
        out.out[0] = out.out[0].max(at) + u64::from(packet.bytes) * 80;
        out.into[1] += 1;
        packet.tail_at = out.out[0];
        let before = &mut at_ports[packet.ingress as usize];
        before.into[0] = before.into[0].saturating_sub(u64::from(packet.bytes));
        packet.ingress = ingress as u32;
        events.push_back((
            at + DELAY_PS,
            (egress << 32) | (event & u64::from(u32::MAX)),
        ));
    }
    let seconds = started.elapsed().as_secs_f64();
    let checked: u64 = at_ports
        .iter()
        .map(|port| port.out[0] ^ port.into[1])
        .fold(0, |a, b| a ^ b);
    println!(
        "{:.1} million bare hops per second over {ports} ports with {packets} packets (check {checked:x})",
        HOPS as f64 / seconds / 1e6
    );
    Ok(())
}
