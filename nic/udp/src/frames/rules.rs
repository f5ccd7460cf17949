//! Which table of routes a packet's way is looked up in: ip-rule(8).

use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleFlags, RuleHeader, RuleMessage};

/// Tables of linux/rtnetlink.h.
pub(super) const LOCAL_TABLE: u32 = 255;
pub(super) const MAIN_TABLE: u32 = 254;
pub(super) const DEFAULT_TABLE: u32 = 253;

/// Whether the rules have every packet look at the table of local addresses, then at the main one,
/// and at another that every host has only afterwards. `None` are those of a kernel that has no
/// others.
pub(super) fn are_ordinary(rules: Option<&[RuleMessage]>) -> bool {
    let Some(rules) = rules else {
        return true;
    };
    let mut tables: Vec<_> = rules.iter().map(ordinary).collect();
    // Of the same priority the kernel tells the first first.
    tables.sort_by_key(|rule| rule.map(|(priority, _)| priority));
    let tables: Option<Vec<_>> = tables
        .into_iter()
        .map(|rule| rule.map(|(_, table)| table))
        .collect();
    matches!(
        tables.as_deref(),
        Some([LOCAL_TABLE, MAIN_TABLE] | [LOCAL_TABLE, MAIN_TABLE, DEFAULT_TABLE])
    )
}

/// The priority and the table of a rule that is about all packets, and all routes of that table.
fn ordinary(rule: &RuleMessage) -> Option<(u32, u32)> {
    let RuleHeader {
        dst_len,
        src_len,
        tos,
        table,
        action,
        flags,
        ..
    } = rule.header;
    let (mut priority, mut table) = (0, u32::from(table));
    let is_plain = |attribute: &RuleAttribute| match attribute {
        RuleAttribute::Priority(number) => {
            priority = *number;
            true
        }
        RuleAttribute::Table(number) => {
            table = *number;
            true
        }
        // The kernel writes -1 where nothing is suppressed.
        RuleAttribute::SuppressPrefixLen(bits) => *bits == u32::MAX,
        // Whether an administrator or a routing daemon wrote it.
        RuleAttribute::Protocol(_) => true,
        _ => false,
    };
    let is_about_all = rule.attributes.iter().all(is_plain)
        && (dst_len, src_len, tos) == (0, 0, 0)
        && !flags.contains(RuleFlags::Invert)
        && action == RuleAction::ToTable;
    is_about_all.then_some((priority, table))
}
