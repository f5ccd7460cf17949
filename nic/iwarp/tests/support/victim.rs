//! A host that the peer reaches for, by segments by hand.

use urxe_iwarp_wire::{AtomicOperation, AtomicRequest, DdpHeader, Opcode, Queue, Tagged, Untagged};
use urxe_proto::PdId;
use urxe_sim::Rights;

use super::Pair;
use super::forge::{frame, untagged};

/// What host 1 has: regions by what may be done with them.
pub struct Keys {
    pub all: u32,
    pub read_only: u32,
    pub of_other_pd: u32,
    pub va: u64,
}

pub const LEN: usize = 4096;

pub fn prepared(seed: u64) -> (Pair, Keys) {
    let mut pair = Pair::plain(seed);
    let host = &mut pair.hosts[1];
    host.reads_in_place = seed.is_multiple_of(2);
    let all = host.register(Rights::ALL, vec![0; LEN]);
    let read_only = host.register(
        Rights {
            remote_read: true,
            ..Rights::default()
        },
        vec![0; LEN],
    );
    let of_other_pd = host.memory.0.register(PdId(2), Rights::ALL, vec![0; LEN]);
    let keys = Keys {
        all,
        read_only,
        of_other_pd,
        va: host.memory.0.va(all, 0),
    };
    let place = host.sge(all, 0, 100);
    host.post_recv(1, &[place]);
    host.post_recv(2, &[]);
    (pair, keys)
}

pub fn send(msn: u32) -> Untagged {
    untagged(Opcode::Send, Queue::Send, msn)
}

pub fn sent(header: Untagged, payload: &[u8]) -> Vec<u8> {
    frame(&DdpHeader::Untagged(header), payload)
}

pub fn written(header: Tagged, payload: &[u8]) -> Vec<u8> {
    frame(&DdpHeader::Tagged(header), payload)
}

pub fn atomic(stag: u32, offset: u64) -> Vec<u8> {
    let request = AtomicRequest {
        operation: AtomicOperation::FetchAdd { add: 1 },
        id: 3,
        stag,
        offset,
    };
    let header = untagged(Opcode::AtomicRequest, Queue::Request, 1);
    sent(header, &request.emit())
}
