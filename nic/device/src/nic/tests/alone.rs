//! Devices without background threads: each round is one of the test.

use std::sync::Arc;

use urxe_proto::QpType;
use urxe_wire::Mtu;

use crate::nic::Nic;
use crate::objects::qp::Qp;
use crate::process::clock::now;
use crate::support::{End, connect_both, device, post};

impl Nic {
    /// A device of the loopback interface.
    pub(crate) fn open_without_thread() -> Arc<Self> {
        let nic = Self::open_unshared(&device("lo")).unwrap();
        nic.start().unwrap();
        nic.close();
        nic
    }
}

/// Two such devices with buffers of this length, and their connected queue pairs.
pub(crate) fn connected(len: usize) -> ([End; 2], [Qp; 2]) {
    connected_by(Mtu::B4096, len)
}

/// The same with this path MTU.
pub(crate) fn connected_by(mtu: Mtu, len: usize) -> ([End; 2], [Qp; 2]) {
    let ends = [(); 2].map(|()| End::of(Nic::open_without_thread(), len));
    let qps = ends.each_ref().map(|end| end.qp(QpType::Rc));
    connect_both(&ends[0], &qps[0], &ends[1], &qps[1], mtu);
    (ends, qps)
}

/// The program at `from` writes to the other's memory, by its queue pair.
pub(crate) fn write(from: &End, qp: &Qp, to: &End, len: usize) {
    post(qp, 0, to.write_op(0), &[from.sge(0, len)]);
}

/// Whether the program at each end may be about to get an answer, or to reply.
pub(crate) fn are_amid(ends: &[End; 2]) -> [bool; 2] {
    ends.each_ref().map(|end| end.nic.is_amid())
}

pub(crate) fn run_until_nobody_is_amid(ends: &[End; 2]) {
    let start = now();
    while are_amid(ends) != [false; 2] {
        ends.iter().for_each(|end| _ = end.nic.run_looking());
        assert!(now().since(start) < 20_000_000_000, "no answer in 20 s");
    }
}
