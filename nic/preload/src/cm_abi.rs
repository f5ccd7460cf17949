//! The C side of communication management: what bindgen read from <rdma/rdma_user_cm.h>, and how
//! its bytes are read and written.

#[allow(
    missing_docs,
    dead_code,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    unnameable_types,
    unsafe_op_in_unsafe_fn,
    clippy::all,
    clippy::pedantic,
    clippy::undocumented_unsafe_blocks,
    reason = "generated"
)]
mod generated {
    include!("../bindings/rdma_cm.rs");
}
pub(crate) use generated::*;

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use crate::errno::{Errno, Outcome};

/// Address family of native InfiniBand addresses (linux/socket.h), which libc does not have.
pub(crate) const AF_IB: u16 = 27;

/// A structure of the interface: plain integers and arrays of them, valid whatever the bytes.
///
/// # Safety
/// It is that.
pub(crate) unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($ty:ty)*) => {$(
        // SAFETY: generated from a structure of integers and arrays.
        unsafe impl Plain for $ty {}
    )*};
}

plain! {
    rdma_ucm_cmd_hdr
    rdma_ucm_create_id rdma_ucm_create_id_resp
    rdma_ucm_destroy_id rdma_ucm_destroy_id_resp
    rdma_ucm_bind_ip rdma_ucm_bind
    rdma_ucm_resolve_ip rdma_ucm_resolve_addr rdma_ucm_resolve_route
    rdma_ucm_query rdma_ucm_query_route_resp rdma_ucm_query_addr_resp
    rdma_ucm_connect rdma_ucm_listen rdma_ucm_accept rdma_ucm_reject rdma_ucm_disconnect
    rdma_ucm_init_qp_attr ib_uverbs_qp_attr
    rdma_ucm_get_event rdma_ucm_event_resp
    rdma_ucm_set_option rdma_ucm_notify
    rdma_ucm_join_ip_mcast rdma_ucm_join_mcast
    rdma_ucm_migrate_id rdma_ucm_migrate_resp
    NativeAddress PathAnswer ResolveService WriteEvent
    u8 u32
}

/// `struct sockaddr_ib` of <rdma/ib.h>, which is a header of librdmacm, not of the kernel's
/// interface.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct NativeAddress {
    pub(crate) family: u16,
    /// Big-endian, as all that follow but the last.
    pub(crate) pkey: u16,
    pub(crate) flow_info: u32,
    pub(crate) address: [u8; 16],
    pub(crate) service_id: u64,
    pub(crate) service_id_mask: u64,
    pub(crate) scope_id: u64,
}

/// `struct rdma_ucm_query_path_resp` with one path.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PathAnswer {
    pub(crate) path_count: u32,
    pub(crate) reserved: u32,
    pub(crate) path: ib_path_rec_data,
}

// What the headers of Linux 6.1 do not have, written down once (Linux 6.18, <rdma/rdma_user_cm.h>).
// Where the system's headers have it, these come before what bindgen read there.

/// Asks the subnet administrator for a service.
pub(crate) const RDMA_USER_CM_CMD_RESOLVE_IB_SERVICE: u32 = 23;
/// Writes an event.
pub(crate) const RDMA_USER_CM_CMD_WRITE_CM_EVENT: u32 = 24;
/// The services that were found, of [`RDMA_USER_CM_CMD_QUERY`].
pub(crate) const RDMA_USER_CM_QUERY_IB_SERVICE: u32 = 3;

/// The start of `struct rdma_ucm_resolve_ib_service`, whose service follows.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ResolveService {
    pub(crate) id: u32,
    pub(crate) reserved: u32,
}

/// `struct rdma_ucm_write_cm_event`, with the member of its union that is used; the others are
/// longer.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct WriteEvent {
    pub(crate) id: u32,
    pub(crate) reserved: u32,
    pub(crate) event: u32,
    pub(crate) status: u32,
    pub(crate) argument: u64,
}

/// Bytes of `struct rdma_ucm_query_ib_service_resp` before its records.
pub(crate) const SERVICE_ANSWER_BYTES: usize = 8;

/// Reads a structure from the start of `bytes`; what is not there (an older program's structure is
/// shorter) is zero.
pub(crate) fn read<T: Plain>(bytes: &[u8]) -> T {
    let length = bytes.len().min(size_of::<T>());
    let mut value = std::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: `length` bytes fit in, and any bytes are a valid value.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), value.as_mut_ptr().cast::<u8>(), length);
        value.assume_init()
    }
}

/// The bytes of a structure.
pub(crate) fn bytes_of<T: Plain>(value: &T) -> &[u8] {
    // SAFETY: the value lives as long as the slice. Padding, of which these structures have none
    // that is not named, was zeroed or copied with the rest.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

/// Reads a socket address: `None` for the unspecified family.
///
/// # Errors
/// EINVAL for too few bytes, EAFNOSUPPORT for another family than IPv4 and IPv6.
pub(crate) fn socket_address(raw: &[u8]) -> Outcome<Option<SocketAddr>> {
    let family = i32::from(u16::from_ne_bytes([raw[0], raw[1]]));
    let port = u16::from_be_bytes([raw[2], raw[3]]);
    let enough = |length: usize| (raw.len() >= length).then_some(()).ok_or(Errno::INVAL);
    match family {
        libc::AF_UNSPEC => Ok(None),
        libc::AF_INET => {
            enough(size_of::<libc::sockaddr_in>())?;
            let ip = Ipv4Addr::new(raw[4], raw[5], raw[6], raw[7]);
            Ok(Some(SocketAddrV4::new(ip, port).into()))
        }
        libc::AF_INET6 => {
            enough(size_of::<libc::sockaddr_in6>())?;
            let mut ip = [0; 16];
            ip.copy_from_slice(&raw[8..24]);
            let scope = u32::from_ne_bytes([raw[24], raw[25], raw[26], raw[27]]);
            Ok(Some(SocketAddrV6::new(ip.into(), port, 0, scope).into()))
        }
        _ => Err(Errno(libc::EAFNOSUPPORT)),
    }
}

/// Writes a socket address into `raw`, the rest of which is zero; returns its length.
pub(crate) fn put_socket_address(address: SocketAddr, raw: &mut [u8]) -> u16 {
    raw.fill(0);
    raw[2..4].copy_from_slice(&address.port().to_be_bytes());
    let (family, length) = match address {
        SocketAddr::V4(v4) => {
            raw[4..8].copy_from_slice(&v4.ip().octets());
            (libc::AF_INET, size_of::<libc::sockaddr_in>())
        }
        SocketAddr::V6(v6) => {
            raw[8..24].copy_from_slice(&v6.ip().octets());
            raw[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
            (libc::AF_INET6, size_of::<libc::sockaddr_in6>())
        }
    };
    raw[..2].copy_from_slice(&u16::try_from(family).unwrap_or(0).to_ne_bytes());
    u16::try_from(length).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_addresses_survive_the_trip() {
        for text in ["10.0.0.1:7174", "[fe80::1%3]:7174", "[::]:0"] {
            let address: SocketAddr = text.parse().unwrap();
            let mut raw = [0xee; 128];
            let length = put_socket_address(address, &mut raw);
            assert_eq!(socket_address(&raw[..length.into()]), Ok(Some(address)));
        }
        let mut raw = [0; 28];
        assert_eq!(socket_address(&raw), Ok(None));
        raw[0] = 2;
        assert_eq!(socket_address(&raw[..8]), Err(Errno::INVAL));
        raw[0] = 1;
        assert_eq!(socket_address(&raw), Err(Errno(libc::EAFNOSUPPORT)));
    }

    /// Against the numbers of Linux 6.18; programs that use them are in `tests/rdmacm.rs`.
    #[test]
    fn structures_of_later_headers_are_where_the_kernel_has_them() {
        assert_eq!(size_of::<WriteEvent>(), 24);
        assert_eq!(std::mem::offset_of!(WriteEvent, argument), 16);
        assert_eq!(size_of::<ResolveService>(), 8);
        assert_eq!(
            RDMA_USER_CM_CMD_RESOLVE_IB_SERVICE,
            RDMA_USER_CM_CMD_JOIN_MCAST + 1
        );
        assert_eq!(RDMA_USER_CM_QUERY_IB_SERVICE, RDMA_USER_CM_QUERY_GID + 1);
    }

    #[test]
    fn a_shorter_structure_is_filled_with_zeros() {
        let header: rdma_ucm_cmd_hdr = read(&[7, 0, 0, 0, 9]);
        assert_eq!((header.cmd, header.in_, header.out), (7, 9, 0));
        assert_eq!(bytes_of(&header), [7, 0, 0, 0, 9, 0, 0, 0]);
    }
}
