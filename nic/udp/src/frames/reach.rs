//! Which hosts frames go to and come from: the neighbours of an address, as far as the kernel would
//! have packets to and from them take the same way, and no other.
//!
//! Where the kernel has another opinion about some of them, what it is does not matter: packets
//! take the socket, and the kernel does as it likes. So the host's own addresses are none, nor are
//! the broadcast addresses of its networks (a packet from one has a source address that is forged);
//! what a route more specific than that of the link is for; and what an IPsec policy is about. With
//! that, what comes as a frame has a source address for which the kernel's check of the reverse
//! path, however strict, finds this link.

use std::io;
use std::net::Ipv4Addr;

use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteType,
};
use netlink_packet_route::rule::RuleMessage;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::net::Net;
use super::rules::{LOCAL_TABLE, MAIN_TABLE, are_ordinary};
use super::xfrm::{Policies, Policy};
use crate::netlink::Netlink;

/// Time to live: what arrives with it comes from a neighbour (RFC 5082), and was sent here.
pub(super) const TTL: u8 = 255;

/// Ranges left out, at most; with more, nothing is left. The filters have jumps of up to 255
/// instructions.
const EXCLUDED_MAX: usize = 64;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reach {
    prefix: Net,
    excluded: Vec<Net>,
    is_open: bool,
}

impl Reach {
    /// The neighbours of `local` on the interface `ifindex`, by the tables as they are now. None
    /// where they cannot be looked at.
    pub(super) fn look(ifindex: u32, local: Ipv4Addr, prefix_bits: u8) -> Self {
        let mut reach = Self {
            prefix: Net::new(local, prefix_bits),
            excluded: Vec::new(),
            is_open: true,
        };
        let looked = tables().and_then(|(routes, rules)| {
            reach.apply_routes(ifindex, &routes, rules.as_deref());
            reach.apply_policies(local, &Policies::look()?);
            Ok(())
        });
        if looked.is_err() {
            reach.close();
        }
        reach
    }

    pub(super) const fn prefix(&self) -> Net {
        self.prefix
    }

    pub(super) fn excluded(&self) -> &[Net] {
        &self.excluded
    }

    /// Whether there are any.
    pub(super) const fn is_open(&self) -> bool {
        self.is_open
    }

    pub(super) fn contains(&self, ip: Ipv4Addr) -> bool {
        self.is_open
            && self.prefix.contains(ip)
            && !self.excluded.iter().any(|net| net.contains(ip))
    }

    /// The same without any neighbour.
    pub(super) fn closed(mut self) -> Self {
        self.close();
        self
    }

    /// The same without these.
    pub(super) fn without(mut self, refused: &[Ipv4Addr]) -> Self {
        for ip in refused {
            self.exclude(Net::new(*ip, 32));
        }
        self
    }

    fn close(&mut self) {
        self.is_open = false;
        self.excluded.clear();
    }

    fn exclude(&mut self, net: Net) {
        if !self.is_open || !net.overlaps(self.prefix) || self.excluded.contains(&net) {
            return;
        }
        if net.bits <= self.prefix.bits || self.excluded.len() == EXCLUDED_MAX {
            self.close();
        } else {
            self.excluded.push(net);
        }
    }

    fn apply_routes(
        &mut self,
        ifindex: u32,
        routes: &[RouteMessage],
        rules: Option<&[RuleMessage]>,
    ) {
        let mut has_link = false;
        for route in routes {
            let table = table(route);
            let net = destination(route);
            let is_of_link =
                table == MAIN_TABLE && net == self.prefix && is_on_link(route, ifindex);
            has_link |= is_of_link;
            // The table of local addresses comes first, however general its routes.
            if table == LOCAL_TABLE
                || table == MAIN_TABLE && net.bits >= self.prefix.bits && !is_of_link
            {
                self.exclude(net);
            }
        }
        // Other rules may send packets to other tables, or to these in another order.
        if !has_link || !are_ordinary(rules) {
            self.close();
        }
    }

    fn apply_policies(&mut self, local: Ipv4Addr, policies: &Policies) {
        if policies.blocks_by_default {
            self.close();
        }
        for Policy { ours, theirs } in &policies.all {
            if ours.contains(local) {
                self.exclude(*theirs);
            }
        }
    }
}

/// The routes and the rules that choose among their tables.
fn tables() -> io::Result<(Vec<RouteMessage>, Option<Vec<RuleMessage>>)> {
    let netlink = Netlink::open()?;
    let (mut routes, mut rules) = (Vec::new(), Vec::new());
    let mut route = RouteMessage::default();
    route.header.address_family = AddressFamily::Inet;
    netlink.dump(RouteNetlinkMessage::GetRoute(route), |row| {
        if let RouteNetlinkMessage::NewRoute(route) = row {
            routes.push(route);
        }
    })?;
    let mut rule = RuleMessage::default();
    rule.header.family = AddressFamily::Inet;
    match netlink.dump(RouteNetlinkMessage::GetRule(rule), |row| {
        if let RouteNetlinkMessage::NewRule(rule) = row {
            rules.push(rule);
        }
    }) {
        // A kernel without them.
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => return Ok((routes, None)),
        other => other?,
    }
    Ok((routes, Some(rules)))
}

fn table(route: &RouteMessage) -> u32 {
    let attribute = route
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::Table(table) => Some(*table),
            _ => None,
        });
    attribute.unwrap_or_else(|| u32::from(route.header.table))
}

fn destination(route: &RouteMessage) -> Net {
    let attribute = route
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::Destination(RouteAddress::Inet(ip)) => Some(*ip),
            _ => None,
        });
    let ip = attribute.unwrap_or(Ipv4Addr::UNSPECIFIED);
    Net::new(ip, route.header.destination_prefix_length)
}

/// Whether packets go straight to the host that they are for, by this interface, as they are.
fn is_on_link(route: &RouteMessage, ifindex: u32) -> bool {
    let RouteHeader { kind, tos, .. } = route.header;
    let mut is_by_it = false;
    let mut is_plain = kind == RouteType::Unicast && tos == 0;
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::Oif(index) => is_by_it = *index == ifindex,
            RouteAttribute::Gateway(_)
            | RouteAttribute::Via(_)
            | RouteAttribute::MultiPath(_)
            | RouteAttribute::Encap(_)
            | RouteAttribute::EncapType(_)
            | RouteAttribute::NewDestination(_) => is_plain = false,
            _ => {}
        }
    }
    is_by_it && is_plain
}

#[cfg(test)]
mod tests {
    use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleFlags};

    use super::super::rules::DEFAULT_TABLE;
    use super::*;

    const LOCAL: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
    const IFINDEX: u32 = 7;

    fn net(text: &str) -> Net {
        let (ip, bits) = text.split_once('/').unwrap();
        Net::new(ip.parse().unwrap(), bits.parse().unwrap())
    }

    fn route(text: &str, table: u32, kind: RouteType, extra: &[RouteAttribute]) -> RouteMessage {
        let net = net(text);
        let mut route = RouteMessage::default();
        route.header.destination_prefix_length = net.bits;
        route.header.kind = kind;
        route.attributes = vec![
            RouteAttribute::Table(table),
            RouteAttribute::Destination(RouteAddress::Inet(Ipv4Addr::from_bits(net.address))),
        ];
        route.attributes.extend(extra.iter().cloned());
        route
    }

    /// What a host with the address has.
    fn usual() -> Vec<RouteMessage> {
        let by = |index| [RouteAttribute::Oif(index)];
        let gateway = RouteAttribute::Gateway(RouteAddress::Inet(Ipv4Addr::new(10, 9, 0, 254)));
        vec![
            route(
                "0.0.0.0/0",
                MAIN_TABLE,
                RouteType::Unicast,
                &[gateway, RouteAttribute::Oif(IFINDEX)],
            ),
            route("10.9.0.0/24", MAIN_TABLE, RouteType::Unicast, &by(IFINDEX)),
            route("10.8.0.0/24", MAIN_TABLE, RouteType::Unicast, &by(8)),
            route("127.0.0.0/8", LOCAL_TABLE, RouteType::Local, &by(1)),
            route("10.9.0.1/32", LOCAL_TABLE, RouteType::Local, &by(IFINDEX)),
            route(
                "10.9.0.255/32",
                LOCAL_TABLE,
                RouteType::Broadcast,
                &by(IFINDEX),
            ),
        ]
    }

    fn rule(table: u32) -> RuleMessage {
        let mut rule = RuleMessage::default();
        rule.header.action = RuleAction::ToTable;
        rule.attributes = vec![RuleAttribute::Table(table)];
        rule
    }

    fn fresh() -> Reach {
        Reach {
            prefix: Net::new(LOCAL, 24),
            excluded: Vec::new(),
            is_open: true,
        }
    }

    fn reach(more: &[RouteMessage], tables: &[u32]) -> Reach {
        let mut reach = fresh();
        let routes = [usual(), more.to_vec()].concat();
        let rules: Vec<_> = tables.iter().copied().map(rule).collect();
        reach.apply_routes(IFINDEX, &routes, Some(&rules));
        reach
    }

    fn reaches(reach: &Reach, host: u8) -> bool {
        reach.contains(Ipv4Addr::new(10, 9, 0, host))
    }

    const USUAL: [u32; 3] = [LOCAL_TABLE, MAIN_TABLE, DEFAULT_TABLE];

    #[test]
    fn neighbours_are_the_prefix_but_the_host_and_broadcast() {
        let reach = reach(&[], &USUAL);
        for (host, expected) in [(0, true), (1, false), (2, true), (254, true), (255, false)] {
            assert_eq!(reaches(&reach, host), expected, "{host}");
        }
        for far in [
            "10.9.1.2",
            "10.8.0.2",
            "127.0.0.1",
            "0.0.0.0",
            "255.255.255.255",
        ] {
            assert!(!reach.contains(far.parse().unwrap()), "{far}");
        }
    }

    #[test]
    fn a_more_specific_route_takes_its_part() {
        let on = |index| vec![RouteAttribute::Oif(index)];
        let gateway = RouteAttribute::Gateway(RouteAddress::Inet(Ipv4Addr::new(10, 9, 0, 3)));
        for (kind, extra) in [
            (RouteType::Unicast, on(8)),
            (
                RouteType::Unicast,
                vec![gateway, RouteAttribute::Oif(IFINDEX)],
            ),
            (RouteType::BlackHole, vec![]),
            (RouteType::Unreachable, vec![]),
            (RouteType::Prohibit, vec![]),
            (RouteType::Throw, vec![]),
            (RouteType::Local, on(1)),
        ] {
            let reach = reach(&[route("10.9.0.64/26", MAIN_TABLE, kind, &extra)], &USUAL);
            for (host, expected) in [(63, true), (64, false), (127, false), (128, true)] {
                assert_eq!(reaches(&reach, host), expected, "{kind:?} {host}");
            }
        }
        // One that is for all of them, or comes first.
        for (text, table, kind) in [
            ("10.9.0.0/24", MAIN_TABLE, RouteType::BlackHole),
            ("10.9.0.0/24", LOCAL_TABLE, RouteType::Local),
            ("10.0.0.0/8", LOCAL_TABLE, RouteType::Local),
            ("0.0.0.0/0", LOCAL_TABLE, RouteType::Local),
        ] {
            assert!(
                !reach(&[route(text, table, kind, &on(1))], &USUAL).is_open(),
                "{text}"
            );
        }
        // In a table at which nothing looks.
        let elsewhere = route("10.9.0.0/25", 100, RouteType::BlackHole, &[]);
        assert!(reaches(&reach(&[elsewhere], &USUAL), 2));
    }

    #[test]
    fn no_route_or_rule_to_the_link_leaves_no_neighbour() {
        let mut reach = fresh();
        reach.apply_routes(IFINDEX + 1, &usual(), None);
        assert!(!reach.is_open(), "by another interface");
        for tables in [
            &[LOCAL_TABLE, 100, MAIN_TABLE][..],
            &[1000],
            &[],
            &[LOCAL_TABLE],
            &[MAIN_TABLE, LOCAL_TABLE],
            &[LOCAL_TABLE, DEFAULT_TABLE, MAIN_TABLE],
        ] {
            assert!(!self::reach(&[], tables).is_open(), "{tables:?}");
        }
    }

    #[test]
    fn a_rule_that_is_not_about_all_packets_leaves_nobody() {
        let is_open = |rules: Option<&[RuleMessage]>| {
            let mut reach = fresh();
            reach.apply_routes(IFINDEX, &usual(), rules);
            reach.is_open()
        };
        let changed = |change: fn(&mut RuleMessage)| {
            let mut rules = USUAL.map(rule);
            change(&mut rules[1]);
            is_open(Some(&rules))
        };
        assert!(is_open(None), "a kernel without rules");
        assert!(changed(|_| ()));
        let none = RuleAttribute::SuppressPrefixLen(u32::MAX);
        let rules = USUAL.map(|table| {
            let mut rule = rule(table);
            rule.attributes.push(none.clone());
            rule
        });
        assert!(is_open(Some(&rules)));
        assert!(!changed(|rule| rule.header.action = RuleAction::Prohibit));
        assert!(!changed(|rule| rule.header.dst_len = 32));
        assert!(!changed(|rule| rule.header.src_len = 8));
        assert!(!changed(|rule| rule.header.tos = 8));
        assert!(!changed(|rule| rule.header.flags |= RuleFlags::Invert));
        assert!(!changed(|rule| rule
            .attributes
            .push(RuleAttribute::FwMark(1))));
        let some =
            |rule: &mut RuleMessage| rule.attributes.push(RuleAttribute::SuppressPrefixLen(0));
        assert!(!changed(some));
        // What is told later may be asked first.
        let mut rules = USUAL.map(rule).to_vec();
        for (rule, priority) in rules.iter_mut().zip([0, 3, 2]) {
            rule.attributes.push(RuleAttribute::Priority(priority));
        }
        assert!(!is_open(Some(&rules)));
    }

    #[test]
    fn too_many_exceptions_leave_nobody() {
        let routes: Vec<_> = (0..EXCLUDED_MAX as u8)
            .map(|host| {
                let text = format!("10.9.0.{}/32", 2 + host);
                route(&text, MAIN_TABLE, RouteType::BlackHole, &[])
            })
            .collect();
        assert!(!reach(&routes, &USUAL).is_open());
        let reach = reach(&routes[..EXCLUDED_MAX - 2], &USUAL);
        assert!(reaches(&reach, 200) && !reaches(&reach, 2));
    }

    #[test]
    fn what_a_policy_is_about_takes_the_socket() {
        let with = |ours: &str, theirs: &str| {
            let mut reach = reach(&[], &USUAL);
            let policies = Policies {
                blocks_by_default: false,
                all: vec![Policy {
                    ours: net(ours),
                    theirs: net(theirs),
                }],
            };
            reach.apply_policies(LOCAL, &policies);
            [2, 3].map(|host| reaches(&reach, host))
        };
        assert_eq!(with("0.0.0.0/0", "10.9.0.2/32"), [false, true]);
        assert_eq!(with("10.9.0.1/32", "10.9.0.2/31"), [false, false]);
        assert_eq!(with("10.9.0.4/32", "10.9.0.2/32"), [true, true]);
        assert_eq!(with("10.9.0.0/24", "10.0.0.0/8"), [false, false]);
        assert_eq!(with("0.0.0.0/0", "10.8.0.0/16"), [true, true]);
        let mut reach = reach(&[], &USUAL);
        let policies = Policies {
            blocks_by_default: true,
            all: Vec::new(),
        };
        reach.apply_policies(LOCAL, &policies);
        assert!(!reach.is_open());
    }

    #[test]
    fn who_was_refused_is_left_out() {
        let refused = [Ipv4Addr::new(10, 9, 0, 5), Ipv4Addr::new(10, 8, 0, 1)];
        let reach = reach(&[], &USUAL).without(&refused);
        assert!(!reaches(&reach, 5) && reaches(&reach, 6));
    }
}
