//! Address handles: where a datagram goes, and how to answer one.
use std::ffi::c_int;

use urxe_device::{AddressVector, GRH_BYTES, Gid, GidType};

use crate::abi::*;
use crate::errno::{Errno, Outcome};
use crate::gid;
use crate::handle::{Handle, Number};
use crate::{convert, kind, pd};

pub(crate) type AhHandle = Handle<ibv_ah, (AddressVector, Number)>;

/// The address behind a handle of ours.
///
/// # Safety
/// `ah` is ours and live.
pub(crate) unsafe fn address(ah: *mut ibv_ah) -> AddressVector {
    // SAFETY: by the caller's promise.
    unsafe { AhHandle::state(ah) }.0
}

/// `ibv_create_ah`.
///
/// # Safety
/// `pd` is ours and live, `attr` is null or readable.
pub(crate) unsafe fn create(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> Outcome<*mut ibv_ah> {
    if attr.is_null() {
        return Err(Errno::INVAL);
    }
    // SAFETY: by the caller's promise.
    let (state, attr) = unsafe { (pd::known(pd)?, &*attr) };
    kind::check_roce(&state.nic)?;
    let address = convert::address_vector(attr, &state.nic)?;
    state.nic.check_address(&address).map_err(|error| {
        log::debug!("an address handle: {error}");
        convert::errno(&error)
    })?;
    state.users.add();
    // SAFETY: by the caller's promise.
    let context = unsafe { (*pd).context };
    let number = Number::fresh();
    let ah = ibv_ah {
        context,
        pd,
        handle: number.get(),
    };
    Ok(AhHandle::give(ah, (address, number)))
}

/// `ibv_destroy_ah`.
///
/// # Safety
/// `ah` is ours and live; no thread uses it any more.
pub(crate) unsafe fn destroy(ah: *mut ibv_ah) -> Outcome<()> {
    // SAFETY: by the caller's promise.
    unsafe {
        AhHandle::state(ah).1.ends((*ah).handle)?;
        pd::state((*ah).pd).users.remove();
        drop(AhHandle::take_back(ah));
    }
    Ok(())
}

/// What the "next header" of a global route header says of a datagram of RoCE v1: a BTH follows
/// (IBTA vol 1, 8.3.1).
const ROCE_V1_NEXT_HEADER: u8 = 0x1b;

/// What the route header of a datagram tells: where it came from and went to.
#[derive(Debug, PartialEq, Eq)]
struct Route {
    source: Gid,
    destination: Gid,
    traffic_class: u8,
    flow_label: u32,
    kind: GidType,
}

impl Route {
    /// Of IPv4, the header stands in the last 20 bytes (IBTA A17.4.5); it is told from IPv6 by its
    /// version and its checksum.
    fn of(header: &[u8; GRH_BYTES]) -> Self {
        let v4 = &header[20..];
        if v4[0] == 0x45 && checksum_is_right(v4) {
            let mapped = |at: usize| {
                let ip: [u8; 4] = [v4[at], v4[at + 1], v4[at + 2], v4[at + 3]];
                Gid::from(std::net::IpAddr::from(ip))
            };
            return Self {
                source: mapped(12),
                destination: mapped(16),
                traffic_class: v4[1],
                flow_label: 0,
                kind: GidType::RoceV2,
            };
        }
        let word = u32::from_be_bytes([header[0], header[1], header[2], header[3]]);
        let gid = |at: usize| {
            let mut bytes = [0; 16];
            bytes.copy_from_slice(&header[at..at + 16]);
            Gid(bytes)
        };
        Self {
            source: gid(8),
            destination: gid(24),
            traffic_class: (word >> 20 & 0xff) as u8,
            flow_label: word & 0x000f_ffff,
            kind: if header[6] == ROCE_V1_NEXT_HEADER {
                GidType::RoceV1
            } else {
                GidType::RoceV2
            },
        }
    }
}

/// Whether an IPv4 header sums up to all ones (RFC 791, 3.1).
fn checksum_is_right(header: &[u8]) -> bool {
    let words = header.chunks_exact(2);
    let sum: u32 = words
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    (sum & 0xffff) + (sum >> 16) == 0xffff
}

/// `ibv_init_ah_from_wc`: the attributes of an address handle that answers a received datagram.
///
/// # Safety
/// `context` is ours and open; `wc` and `grh` are null or readable, `attr` is null or writable.
pub(crate) unsafe fn init_from_wc(
    context: *mut ibv_context,
    port: u8,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    attr: *mut ibv_ah_attr,
) -> Outcome<c_int> {
    if wc.is_null() || attr.is_null() {
        return Err(Errno::INVAL);
    }
    // SAFETY: by the caller's promise.
    let wc = unsafe { &*wc };
    if wc.wc_flags & IBV_WC_GRH == 0 {
        // As libibverbs has it: an address that is a LID.
        let answer = ibv_ah_attr {
            dlid: wc.slid,
            sl: wc.sl,
            src_path_bits: wc.dlid_path_bits,
            port_num: port,
            ..ibv_ah_attr::default()
        };
        // SAFETY: by the caller's promise.
        unsafe { *attr = answer };
        return Ok(0);
    }
    if grh.is_null() {
        return Err(Errno::INVAL);
    }
    // SAFETY: by the caller's promise; the header is as long as the struct.
    let route = Route::of(unsafe { &*grh.cast::<[u8; GRH_BYTES]>() });
    // SAFETY: by the caller's promise.
    let index = unsafe { gid::index_for(context, port, route.destination, route.kind) }?;
    let answer = ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid {
                raw: route.source.0,
            },
            flow_label: route.flow_label,
            sgid_index: index,
            hop_limit: u8::MAX,
            traffic_class: route.traffic_class,
        },
        is_global: 1,
        port_num: port,
        ..ibv_ah_attr::default()
    };
    // SAFETY: by the caller's promise.
    unsafe { *attr = answer };
    Ok(0)
}

/// `ibv_create_ah_from_wc`.
///
/// # Safety
/// `pd` is ours and live; `wc` and `grh` are null or readable.
pub(crate) unsafe fn create_from_wc(
    pd: *mut ibv_pd,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    port: u8,
) -> Outcome<*mut ibv_ah> {
    let mut attr = ibv_ah_attr::default();
    // SAFETY: by the caller's promise.
    unsafe {
        init_from_wc((*pd).context, port, wc, grh, &raw mut attr)?;
        create(pd, &raw mut attr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv4_and_ipv6_headers_are_told_apart() {
        let mut header = [0; GRH_BYTES];
        header[20..].copy_from_slice(&[
            0x45, 0x08, 0, 0x54, 0, 0, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2,
        ]);
        let sum: u32 = header[20..]
            .chunks(2)
            .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]))
            .sum();
        let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
        header[30..32].copy_from_slice(&checksum.to_be_bytes());
        let route = Route::of(&header);
        assert_eq!(route.source.to_ip(), std::net::IpAddr::from([192, 0, 2, 1]));
        assert_eq!(
            route.destination.to_ip(),
            std::net::IpAddr::from([192, 0, 2, 2])
        );
        assert_eq!(route.traffic_class, 8);

        let mut header = [0x11; GRH_BYTES];
        header[..4].copy_from_slice(&[0x6a, 0xb1, 0x23, 0x45]);
        // The destination may look like the start of an IPv4 header; the checksum tells.
        header[20] = 0x45;
        let route = Route::of(&header);
        assert_eq!(route.source.0[..12], [0x11; 12]);
        assert_eq!((route.traffic_class, route.flow_label), (0xab, 0x12345));
        assert_eq!(route.kind, GidType::RoceV2);
        header[6] = ROCE_V1_NEXT_HEADER;
        assert_eq!(Route::of(&header).kind, GidType::RoceV1);
    }
}
