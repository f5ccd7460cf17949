//! Receives of a shared queue are memory of the queue's protection domain, whatever that of the
//! queue pair is.

mod support;

use support::scenario::PD;
use urxe_proto::{
    PdId, QpType, QueueSide, RecvRequest, SendData, SendOp, SendRequest, SendTarget, Sge, WcStatus,
};
use urxe_sim::{AckPolicy, ConnectOptions, LinkConfig, Rights, World};

const QUEUE_PD: PdId = PdId(PD.0 + 1);
const LEN: usize = 100_000;

/// How a message into memory of `memory_pd` that was posted to a queue of `QUEUE_PD` is received by
/// a queue pair of `PD`.
fn received(qp_type: QpType, policy: AckPolicy, memory_pd: PdId) -> WcStatus {
    let mut world = World::new(7, false);
    let hosts = [world.add_host(), world.add_host()];
    world.add_link(hosts[0], hosts[1], LinkConfig::default(), &[]);
    for host in hosts {
        world.host_mut(host).ack_policy = policy;
    }
    let srq = world.host_mut(hosts[1]).add_srq(QUEUE_PD, 4, 1);
    let ends = [
        (hosts[0], (qp_type, None)),
        (hosts[1], (qp_type, Some(srq))),
    ];
    let (from, _) = world.connect_as(ends, PD, &ConnectOptions::default());
    let local = Rights {
        local_write: true,
        ..Rights::default()
    };
    let memory = &mut world.host_mut(hosts[1]).memory;
    let lkey = memory.register(memory_pd, local, vec![0; LEN]);
    let addr = memory.va(lkey, 0);
    let len = LEN as u32;
    let sges = [Sge { addr, len, lkey }];
    let receive = RecvRequest {
        wr_id: 1,
        sges: &sges,
    };
    world
        .host_mut(hosts[1])
        .srq_mut(srq)
        .post(&receive)
        .unwrap();
    let memory = &mut world.host_mut(hosts[0]).memory;
    let source = memory.register(PD, Rights::default(), vec![7; LEN]);
    let sges = [Sge {
        addr: memory.va(source, 0),
        len,
        lkey: source,
    }];
    let request = SendRequest {
        wr_id: 2,
        op: SendOp::Send,
        data: SendData::Sges(&sges),
        signaled: true,
        solicited: false,
        fence: false,
        target: SendTarget::Connection,
    };
    world.post_send(from, &request).unwrap();
    loop {
        if let Some((_, completion)) = world.host_mut(hosts[1]).poll_completion() {
            assert_eq!(completion.side(), QueueSide::Recv);
            if completion.status == WcStatus::Success {
                let bytes = world.host(hosts[1]).memory.bytes(lkey);
                assert!(bytes.iter().all(|byte| *byte == 7));
            }
            return completion.status;
        }
        assert!(world.step(), "nothing is received");
    }
}

#[test]
fn a_shared_queue_receives_in_its_own_protection_domain() {
    for qp_type in [QpType::Rc, QpType::Uc] {
        for policy in [AckPolicy::Hold, AckPolicy::Mixed] {
            let status = |memory_pd| received(qp_type, policy, memory_pd);
            assert_eq!(status(QUEUE_PD), WcStatus::Success, "{qp_type:?}");
            assert_eq!(status(PD), WcStatus::LocalProtection, "{qp_type:?}");
        }
    }
}
