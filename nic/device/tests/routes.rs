//! A device follows the routes and IPsec policies of its host: what these do not let go straight to
//! a neighbour is no frame.

mod support;

use std::time::{Duration, Instant};

use support::{End, connect_with, ip, on_a_link, peer_attributes, post};
use urxe_device::{Attributes, Gid, Mtu, QpType, Qpn, SendOp};

fn frames(end: &End) -> u64 {
    end.count("tx_frames")
}

/// Polls until the device has sent another frame.
fn sends_frames(end: &End) -> bool {
    let (start, before) = (Instant::now(), frames(end));
    while frames(end) == before {
        if start.elapsed() > Duration::from_secs(60) {
            return false;
        }
        end.cq.poll(0, |_| ());
    }
    true
}

/// Polls until it has sent none for longer than a repetition takes.
fn sends_no_frames(end: &End) -> bool {
    const QUIET: Duration = Duration::from_millis(2500);
    let start = Instant::now();
    let (mut before, mut since) = (frames(end), start);
    while since.elapsed() < QUIET {
        let now = frames(end);
        if now != before {
            (before, since) = (now, Instant::now());
        }
        if start.elapsed() > Duration::from_secs(60) {
            return false;
        }
        end.cq.poll(0, |_| ());
    }
    true
}

#[test]
fn a_device_follows_routes_and_policies() {
    on_a_link(|| {
        let end = End::on("near", 4096);
        let ipv4 = end.gid_index(false).unwrap();
        let qp = end.qp(QpType::Rc);
        let gid = Gid::from(std::net::Ipv4Addr::new(10, 9, 0, 2));
        let wanted = Attributes {
            source_gid_index: ipv4,
            // It tries for ever.
            timeout: 0,
            ..peer_attributes(gid, Qpn::new(5), Mtu::B1024)
        };
        connect_with(&qp, &wanted);
        let sge = end.sge(0, 8);
        post(&qp, 1, SendOp::Send, &[sge]);
        if frames(&end) == 0 && !sends_frames(&end) {
            println!("skipped: no frames before Linux 6.2");
            return;
        }
        for (begin, over) in [
            ("route add 10.9.0.2 dev far", "route del 10.9.0.2 dev far"),
            (
                "route add blackhole 10.9.0.2",
                "route del blackhole 10.9.0.2",
            ),
            (
                "xfrm policy add dir out src 10.9.0.1 dst 10.9.0.2 action block",
                "xfrm policy flush",
            ),
        ] {
            if !ip(begin) && begin.starts_with("xfrm") {
                println!("skipped: the kernel has no IPsec policies (CONFIG_XFRM_USER)");
                return;
            }
            assert!(sends_no_frames(&end), "{begin}");
            assert!(ip(over), "{over}");
            assert!(sends_frames(&end), "{over}");
        }
    });
}
