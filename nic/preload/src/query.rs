//! What a device and its one port can do.
use std::ffi::c_int;
use std::mem::offset_of;

use urxe_device::{Cq, DeviceKind, Limits, Nic};

use crate::abi::*;
use crate::errno::{Errno, Outcome};
use crate::port::check_port;
use crate::{context, convert, device, kind, speed};

/// The default partition, full member, in network byte order; RoCE has no other.
const PKEY: u16 = 0xffff;
/// "No vendor" and "unknown part", as Linux's software RDMA devices say.
const VENDOR_ID: u32 = 0x00ff_ffff;
/// An interface without a wire (loopback, bridges, veth) carries what a processor moves: 25 Gbps at
/// best. UCX believes the figure. At the 10 Gbps that a veth pair says of itself it would send
/// messages from 1 KiB on by rendezvous, at 100 Gbps none that takes two packets. Both cost half of
/// the bandwidth there, or more.
const WITHOUT_WIRE_MBPS: u32 = 25_000;
/// 4 KB pages and every larger power of two below 4 GB.
const PAGE_SIZES: u64 = 0xffff_f000;
/// The device's clock counts nanoseconds.
const CLOCK_KHZ: u64 = 1_000_000;
/// 4.096 us times two to this is the longest that a peer of ours waits for its acknowledgement, on
/// a busy machine; what Linux's software RDMA device says.
const ACK_DELAY: u8 = 15;
/// LinkUp and Disabled of the physical port states of IBTA 14.2.5.6.
pub(crate) const PHYSICAL_LINK_UP: u8 = 5;
pub(crate) const PHYSICAL_DISABLED: u8 = 3;

/// A limit as C has it, where `int` may be too small for it.
fn clamp(value: impl TryInto<c_int>) -> c_int {
    value.try_into().unwrap_or(c_int::MAX)
}

/// `ibv_query_device`.
///
/// # Safety
/// `context` is ours and open, `attr` is null or writable.
pub(crate) unsafe fn device(context: *mut ibv_context, attr: *mut ibv_device_attr) -> Outcome<()> {
    if attr.is_null() {
        return Err(Errno::INVAL);
    }
    // SAFETY: by the caller's promise.
    unsafe { *attr = device_attr(context) };
    Ok(())
}

/// # Safety
/// `context` is ours and open.
unsafe fn device_attr(context: *mut ibv_context) -> ibv_device_attr {
    // SAFETY: by the caller's promise.
    let (state, info) = unsafe { (context::state(context), device::info((*context).device)) };
    let limits = state.nic.limits();
    let guid = u64::from_ne_bytes(info.guid);
    let mut attr = ibv_device_attr {
        node_guid: guid,
        sys_image_guid: guid,
        page_size_cap: PAGE_SIZES,
        vendor_id: VENDOR_ID,
        device_cap_flags: kind::cap_flags(info.kind),
        atomic_cap: IBV_ATOMIC_HCA,
        max_pkeys: kind::table_lengths(info.kind).1,
        local_ca_ack_delay: ACK_DELAY,
        phys_port_cnt: 1,
        ..ibv_device_attr::default()
    };
    device::put(&mut attr.fw_ver, env!("CARGO_PKG_VERSION"));
    put_limits(&mut attr, limits);
    if info.kind == DeviceKind::Iwarp {
        attr.max_ah = 0;
        attr.max_mcast_grp = 0;
        attr.max_mcast_qp_attach = 0;
        attr.max_total_mcast_qp_attach = 0;
    }
    attr
}

fn put_limits(attr: &mut ibv_device_attr, limits: &Limits) {
    attr.max_qp = clamp(limits.max_qp);
    attr.max_qp_wr = clamp(limits.max_qp_wr);
    attr.max_sge = clamp(limits.max_sge);
    attr.max_sge_rd = clamp(limits.max_sge);
    attr.max_cq = clamp(limits.max_cq);
    attr.max_cqe = clamp(limits.max_cqe);
    attr.max_mr = clamp(limits.max_mr);
    attr.max_pd = clamp(limits.max_pd);
    attr.max_mr_size = limits.max_mr_bytes;
    attr.max_qp_rd_atom = clamp(limits.max_rd_atomic);
    attr.max_qp_init_rd_atom = clamp(limits.max_rd_atomic);
    attr.max_ah = c_int::MAX;
    attr.max_mw = clamp(limits.max_mw);
    attr.max_srq = clamp(limits.max_srq);
    attr.max_srq_wr = clamp(limits.max_srq_wr);
    attr.max_srq_sge = clamp(limits.max_sge);
    attr.max_mcast_grp = clamp(limits.max_mcast_grp);
    attr.max_mcast_qp_attach = clamp(limits.max_mcast_qp_attach);
    attr.max_total_mcast_qp_attach = clamp(
        limits
            .max_mcast_grp
            .saturating_mul(limits.max_mcast_qp_attach),
    );
    attr.max_res_rd_atom = clamp(limits.max_qp.saturating_mul(limits.max_rd_atomic.into()));
}

/// `ibv_query_device_ex`: what the caller's struct has room for.
///
/// # Safety
/// `context` is ours and open, `attr` has `size` writable bytes.
pub(crate) unsafe fn device_ex(
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
    size: usize,
) -> Outcome<()> {
    // SAFETY: the caller's input is null or readable.
    let asks_more = !input.is_null() && unsafe { (*input).comp_mask } != 0;
    if asks_more || attr.is_null() || size < size_of::<ibv_device_attr>() {
        return Err(Errno::INVAL);
    }
    let mut answer = ibv_device_attr_ex {
        // SAFETY: by the caller's promise.
        orig_attr: unsafe { device_attr(context) },
        phys_port_cnt_ex: 1,
        ..ibv_device_attr_ex::default()
    };
    // SAFETY: by the caller's promise.
    let nic = &unsafe { context::state(context) }.nic;
    answer.max_dm_size = nic.limits().max_dm_bytes;
    put_paging(&mut answer);
    put_queues(&mut answer);
    answer.device_cap_flags_ex = answer.orig_attr.device_cap_flags.into();
    if !nic.is_iwarp() {
        answer.device_cap_flags_ex |= DEVICE_FLUSH_GLOBAL | DEVICE_ATOMIC_WRITE;
    }
    // SAFETY: by the caller's promise.
    unsafe { copy_out(&answer, attr.cast(), size) };
    Ok(())
}

/// On-demand paging: all of it.
fn put_paging(attr: &mut ibv_device_attr_ex) {
    let datagrams = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV;
    let all = datagrams | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC;
    attr.odp_caps.general_caps = u64::from(IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT);
    attr.odp_caps.per_transport_caps.rc_odp_caps =
        all | IBV_ODP_SUPPORT_FLUSH | IBV_ODP_SUPPORT_ATOMIC_WRITE;
    attr.odp_caps.per_transport_caps.uc_odp_caps = datagrams | IBV_ODP_SUPPORT_WRITE;
    attr.odp_caps.per_transport_caps.ud_odp_caps = datagrams;
    attr.xrc_odp_caps = all;
}

/// What completion queues can do: timestamps of 64 bits, in nanoseconds, and moderation.
fn put_queues(attr: &mut ibv_device_attr_ex) {
    attr.completion_timestamp_mask = u64::MAX;
    attr.hca_core_clock = CLOCK_KHZ;
    attr.cq_mod_caps = ibv_cq_moderation_caps {
        max_cq_count: u16::MAX,
        max_cq_period: u16::MAX,
    };
}

/// `ibv_query_rt_values_ex`: the clock of completion timestamps. As drivers of hardware do, the
/// whole of it stands in `tv_nsec`.
///
/// # Safety
/// `values` is null or readable and writable.
pub(crate) unsafe fn values(_: *mut ibv_context, values: *mut ibv_values_ex) -> Outcome<()> {
    if values.is_null() {
        return Err(Errno::INVAL);
    }
    // SAFETY: by the caller's promise.
    let values = unsafe { &mut *values };
    if values.comp_mask & !IBV_VALUES_MASK_RAW_CLOCK != 0 {
        return Err(Errno::INVAL);
    }
    if values.comp_mask & IBV_VALUES_MASK_RAW_CLOCK != 0 {
        values.raw_clock.tv_sec = 0;
        values.raw_clock.tv_nsec = Cq::timestamp_now_ns().cast_signed();
    }
    Ok(())
}

/// Copies as much of `answer` as fits into `size` bytes, and zeroes what the caller has beyond it.
///
/// # Safety
/// `to` has `size` writable bytes.
unsafe fn copy_out<T>(answer: &T, to: *mut u8, size: usize) {
    let known = size.min(size_of::<T>());
    // SAFETY: both ranges have that many bytes and do not overlap.
    unsafe {
        std::ptr::copy_nonoverlapping(std::ptr::from_ref(answer).cast(), to, known);
        to.add(known).write_bytes(0, size - known);
    }
}

/// `ibv_query_port` of a program built against a current verbs.h.
///
/// # Safety
/// `context` is ours and open, `attr` has `size` writable bytes.
pub(crate) unsafe fn port(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
    size: usize,
) -> Outcome<()> {
    check_port(port.into())?;
    if attr.is_null() {
        return Err(Errno::INVAL);
    }
    // SAFETY: by the caller's promise.
    unsafe {
        let answer = port_attr(&context::state(context).nic);
        copy_out(&answer, attr.cast(), size);
    }
    Ok(())
}

/// `ibv_query_port` as an exported symbol: the struct of older programs ends before
/// `port_cap_flags2`.
///
/// # Safety
/// `context` is ours and open, `attr` is writable.
pub(crate) unsafe fn port_compat(
    context: *mut ibv_context,
    number: u8,
    attr: *mut _compat_ibv_port_attr,
) -> Outcome<()> {
    // SAFETY: by the caller's promise.
    unsafe {
        port(
            context,
            number,
            attr.cast(),
            offset_of!(ibv_port_attr, port_cap_flags2),
        )
    }
}

/// `ibv_query_port_speed`: in units of 100 Mbit/s. An interface without a wire has the speed that
/// [`link`] gives it.
///
/// # Safety
/// `context` is ours and open, `speed` is null or writable.
pub(crate) unsafe fn port_speed(
    context: *mut ibv_context,
    port: u32,
    speed: *mut u64,
) -> Outcome<()> {
    const UNIT_MBPS: u32 = 100;
    check_port(port)?;
    if speed.is_null() {
        return Err(Errno::INVAL);
    }
    // SAFETY: by the caller's promise.
    let nic = &unsafe { context::state(context) }.nic;
    let mbps = speed::of(&nic.info().netdev).unwrap_or(WITHOUT_WIRE_MBPS);
    // SAFETY: by the caller's promise.
    unsafe { *speed = (mbps / UNIT_MBPS).into() };
    Ok(())
}

fn port_attr(nic: &Nic) -> ibv_port_attr {
    nic.follow_link();
    let info = nic.port();
    let (width, speed) = link(speed::of(&nic.info().netdev));
    let of_kind = nic.info().kind;
    let (gids, pkeys) = kind::table_lengths(of_kind);
    ibv_port_attr {
        state: if info.is_up {
            IBV_PORT_ACTIVE
        } else {
            IBV_PORT_DOWN
        },
        max_mtu: convert::mtu(info.max_mtu),
        active_mtu: convert::mtu(info.active_mtu),
        gid_tbl_len: gids.into(),
        port_cap_flags: kind::port_flags(of_kind),
        max_msg_sz: nic.limits().max_message_bytes,
        pkey_tbl_len: pkeys,
        max_vl_num: 1,
        lid: if nic.is_iwarp() {
            0
        } else {
            urxe_device::lid(&nic.gids())
        },
        active_width: width,
        active_speed: speed,
        phys_state: if info.is_up {
            PHYSICAL_LINK_UP
        } else {
            PHYSICAL_DISABLED
        },
        link_layer: link_layer(),
        ..ibv_port_attr::default()
    }
}

fn link_layer() -> u8 {
    IBV_LINK_LAYER_ETHERNET
        .try_into()
        .expect("a small constant")
}

/// Link width and speed for an Ethernet rate, coded as in IBTA's PortInfo (14.2.5.6), the way Linux
/// maps them for RoCE: lanes times rate comes out at the Ethernet rate or above.
pub(crate) fn link(speed_mbps: Option<u32>) -> (u8, u8) {
    const LANES_1: u8 = 1;
    const LANES_4: u8 = 2;
    const SDR: u8 = 1;
    const DDR: u8 = 2;
    const FDR10: u8 = 8;
    const EDR: u8 = 32;
    const HDR: u8 = 64;
    match speed_mbps.unwrap_or(WITHOUT_WIRE_MBPS) {
        ..=2_500 => (LANES_1, SDR),
        2_501..=10_000 => (LANES_1, FDR10),
        10_001..=20_000 => (LANES_4, DDR),
        20_001..=25_000 => (LANES_1, EDR),
        25_001..=40_000 => (LANES_4, FDR10),
        40_001..=100_000 => (LANES_4, EDR),
        _ => (LANES_4, HDR),
    }
}

/// `ibv_query_pkey`.
///
/// # Safety
/// `pkey` is null or writable.
pub(crate) unsafe fn pkey(
    _context: *mut ibv_context,
    port: u8,
    index: c_int,
    pkey: *mut u16,
) -> Outcome<c_int> {
    check_port(port.into())?;
    if index != 0 || pkey.is_null() {
        return Err(Errno::INVAL);
    }
    // SAFETY: by the caller's promise.
    unsafe { *pkey = PKEY };
    Ok(0)
}

/// `ibv_get_pkey_index`.
///
/// # Safety
/// None needed.
pub(crate) unsafe fn pkey_index(_: *mut ibv_context, port: u8, pkey: u16) -> Outcome<c_int> {
    check_port(port.into())?;
    if pkey == PKEY {
        Ok(0)
    } else {
        Err(Errno::INVAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gbps of a lane, by its code.
    fn lane_gbps(speed: u8) -> f64 {
        match speed {
            1 => 2.5,
            2 => 5.0,
            8 => 10.0,
            32 => 25.0,
            64 => 50.0,
            other => panic!("no speed {other}"),
        }
    }

    #[test]
    fn links_are_at_least_as_fast_as_the_interface() {
        for gbps in [1.0, 10.0, 25.0, 40.0, 50.0, 100.0, 200.0] {
            let (width, speed) = link(Some((gbps * 1000.0) as u32));
            let lanes = if width == 1 { 1.0 } else { 4.0 };
            assert!(lanes * lane_gbps(speed) >= gbps, "{gbps} Gbps");
        }
        assert_eq!(link(None), link(Some(25_000)));
    }

    #[test]
    fn short_structs_are_not_overrun_and_long_ones_zeroed() {
        let mut room = [0xaau8; 8];
        // SAFETY: the array has the bytes.
        unsafe { copy_out(&0x0102_0304u32, room.as_mut_ptr(), 2) };
        assert_eq!(room[2..], [0xaa; 6]);
        // SAFETY: the array has the bytes.
        unsafe { copy_out(&0u32, room.as_mut_ptr(), 8) };
        assert_eq!(room, [0; 8]);
    }
}
