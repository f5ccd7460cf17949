//! RoCE v1 frames that a hostile host puts on the link, at live queue pairs: packets that are right
//! and lie, and ones that were damaged anywhere, with an ICRC that fits.

mod support;

use std::net::Ipv4Addr;
use std::sync::Once;

use oorandom::Rand32;
use support::duel::{BUFFER_BYTES, DATA, PEER, UNTOUCHED, header, without_icrc};
use support::wire_end::WireEnd;
use support::{End, all_rights, connect_with, on_a_link, peer_attributes};
use urxe_device::{Attributes, Gid, Mtu, Psn, Qp, QpState, QpType, Qpn, ROCE_V1_DISTANCE};
use urxe_wire::icrc::Flow;
use urxe_wire::{AtomicEth, Grh, Operation, ROCE_V1_ETHERTYPE};

const VICTIM: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const PEER_IP: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
const FRAMES: u32 = 5000;
/// Of the buffer, what the key is for. No peer may write the rest.
const KEY_BYTES: usize = BUFFER_BYTES / 2;

struct Scene {
    end: End,
    /// The queue pair that frames are for, and one beside it.
    qp: Qp,
    other: Qp,
    link: WireEnd,
}

impl Scene {
    fn new() -> Self {
        static ONCE: Once = Once::new();
        // SAFETY: no thread reads the environment before, as each test comes here first.
        ONCE.call_once(|| unsafe { std::env::set_var(urxe_device::ROCE_V1_VARIABLE, "on") });
        let mut end = End::on("near", BUFFER_BYTES);
        end.buffer.fill(UNTOUCHED);
        end.nic.deregister(end.key).unwrap();
        let (at, len) = (end.va(0), KEY_BYTES as u64);
        let region = end.nic.register(end.pd, at, len, at, all_rights());
        end.key = region.unwrap().lkey;
        let index = usize::from(end.gid_index(false).unwrap()) + ROCE_V1_DISTANCE;
        let connected = |peer: Qpn| {
            let qp = end.qp(QpType::Rc);
            let wanted = Attributes {
                source_gid_index: u8::try_from(index).unwrap(),
                ..peer_attributes(Gid::from(PEER_IP), peer, Mtu::B1024)
            };
            connect_with(&qp, &wanted);
            qp
        };
        let qp = connected(PEER);
        // One damaged byte is not to make one's number of the other's.
        let is_apart = |other: &Qp| {
            let different = qp.number().get() ^ other.number().get();
            different & 0xff != 0 && different & 0xff00 != 0
        };
        let beside = || connected(Qpn::new(PEER.get() + 1));
        let other = std::iter::repeat_with(beside).find(is_apart).unwrap();
        Self {
            qp,
            other,
            end,
            link: WireEnd::open(),
        }
    }

    /// Ethernet and global route header of a frame with so many bytes behind them.
    fn headers(&self, source: Gid, len: usize) -> Vec<u8> {
        let route = Grh {
            traffic_class: 0,
            flow_label: 0,
            payload_len: u16::try_from(len).unwrap(),
            hop_limit: 1,
            source,
            destination: Gid::from(VICTIM),
        };
        let mut frame = self.link.near_mac.to_vec();
        frame.extend([2, 0, 0, 0, 0, 2]);
        frame.extend(ROCE_V1_ETHERTYPE.to_be_bytes());
        frame.extend(route.emit());
        frame
    }

    /// The frame of a packet, with an ICRC that is right.
    fn frame(&self, source: Gid, mut packet: Vec<u8>) -> Vec<u8> {
        let flow = Flow::v1(source, Gid::from(VICTIM));
        let icrc = flow.start(packet.len() + 4, 0, &packet).finish();
        packet.extend_from_slice(&icrc);
        [self.headers(source, packet.len()), packet].concat()
    }

    fn write(&self, qp: &Qp) -> Vec<u8> {
        let psn = qp.query().unwrap().rq_psn;
        let mut header = header(qp, Operation::WriteOnly, psn);
        header.reth = Some(self.end.reth(0, 16));
        without_icrc(&header, &DATA)
    }

    fn is_written(&self) -> bool {
        self.end.buffer[..16] == DATA
    }
}

#[test]
fn a_frame_of_the_peer_is_taken_and_one_of_another_host_is_not() {
    on_a_link(|| {
        let mut scene = Scene::new();
        let packet = scene.write(&scene.qp);
        let other = Gid::from(Ipv4Addr::new(10, 9, 0, 3));
        scene.link.put(&scene.frame(other, packet.clone()));
        scene
            .end
            .poll_until("dropped", || scene.end.count("rx_wrong_source") == 1);
        let own = Gid::from(VICTIM);
        let before = scene.end.count("rx_packets");
        scene.link.put(&scene.frame(own, packet.clone()));
        let mut damaged = scene.frame(Gid::from(PEER_IP), packet.clone());
        *damaged.last_mut().unwrap() ^= 1;
        scene.link.put(&damaged);
        scene
            .end
            .poll_until("it has come", || scene.end.count("rx_packets") > before);
        assert!(scene.end.buffer.iter().all(|byte| *byte == UNTOUCHED));
        scene.link.put(&scene.frame(Gid::from(PEER_IP), packet));
        scene
            .end
            .poll_until("the memory is written", || scene.is_written());
        scene.end.buffer.fill(UNTOUCHED);
    });
}

#[test]
fn damaged_frames_write_nowhere_else_and_stop_no_other_queue_pair() {
    on_a_link(|| {
        let scene = Scene::new();
        let peer = Gid::from(PEER_IP);
        let mut random = Rand32::new(1);
        for _ in 0..FRAMES {
            let mut packet = some_packet(&scene, &mut random);
            let has_icrc = random.rand_range(0..4) > 0;
            if has_icrc {
                // Before the ICRC is taken, so that more than the check of it is reached.
                damage(&mut packet, &mut random);
                let longest = u32::try_from(packet.len()).unwrap() + 1;
                if random.rand_range(0..8) == 0 {
                    packet.truncate(random.rand_range(0..longest) as usize);
                }
            }
            let mut frame = scene.frame(peer, packet);
            if !has_icrc {
                damage(&mut frame, &mut random);
                // As long as an Ethernet header, which the kernel wants.
                let longest = u32::try_from(frame.len()).unwrap() + 1;
                frame.truncate(random.rand_range(14..longest) as usize);
            }
            scene.link.put(&frame);
            scene.end.cq.poll(16, |_| ());
        }
        assert!(
            scene.end.buffer[KEY_BYTES..]
                .iter()
                .all(|byte| *byte == UNTOUCHED),
            "outside of what the key is for"
        );
        assert_eq!(scene.other.state().unwrap(), QpState::ReadyToSend);
        let write = scene.write(&scene.other);
        scene.link.put(&scene.frame(peer, write));
        scene
            .end
            .poll_until("the other is written to", || scene.is_written());
    });
}

/// A packet for the queue pair of the scene, of which most is right.
fn some_packet(scene: &Scene, random: &mut Rand32) -> Vec<u8> {
    use Operation as O;
    const OPERATIONS: [Operation; 8] = [
        O::WriteOnly,
        O::WriteFirst,
        O::WriteMiddle,
        O::SendOnly,
        O::SendFirst,
        O::ReadRequest,
        O::FetchAdd,
        O::ReadResponseOnly,
    ];
    let operation = OPERATIONS[random.rand_range(0..8) as usize];
    let psn = scene.qp.query().map_or(Psn::new(0), |qp| qp.rq_psn);
    let mut header = header(&scene.qp, operation, psn.add(random.rand_range(0..2)));
    let at = random.rand_range(0..(KEY_BYTES as u32)) as usize & !7;
    let len = if operation == O::WriteFirst { 1024 } else { 64 };
    let has_reth = matches!(operation, O::WriteOnly | O::WriteFirst | O::ReadRequest);
    header.reth = has_reth.then(|| scene.end.reth(at, len));
    header.atomic = (operation == O::FetchAdd).then(|| AtomicEth {
        va: scene.end.va(at),
        rkey: scene.end.key,
        swap_or_add: 1,
        compare: 0,
    });
    let aeth = urxe_wire::Aeth {
        syndrome: urxe_wire::Syndrome::Ack { credits: 31 },
        msn: 0,
    };
    header.aeth = (operation == O::ReadResponseOnly).then_some(aeth);
    let payload = match operation {
        O::ReadRequest | O::FetchAdd => 0,
        O::WriteFirst | O::WriteMiddle | O::SendFirst => 1024,
        _ => 64,
    };
    without_icrc(&header, &vec![0xee; payload])
}

/// Changes some bytes, or none.
fn damage(bytes: &mut [u8], random: &mut Rand32) {
    let len = u32::try_from(bytes.len()).unwrap();
    for _ in 0..random.rand_range(0..4) {
        // Headers are where most may go wrong.
        let end = if random.rand_range(0..3) > 0 {
            40.min(len)
        } else {
            len
        };
        bytes[random.rand_range(0..end) as usize] = random.rand_range(0..256) as u8;
    }
}
