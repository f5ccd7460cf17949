//! The commands of `/dev/infiniband/rdma_cm`: librdmacm writes them, and finds the answer where the
//! command says. Structures and meanings are those of <rdma/rdma_user_cm.h>; what a command does is
//! in `urxe-device`.
use std::net::SocketAddr;

use urxe_device::{CmAddress, CmEventKind, CmFile, CmOption, CmQpType, CmWait, PortSpace, QpState};

use crate::abi::{IBV_EVENT_COMM_EST, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS};
use crate::blocking::{self, Frame};
use crate::cm_abi::*;
use crate::cm_convert::*;
use crate::cm_table;
use crate::errno::{Errno, Outcome};

/// Executes what a program wrote: a header, and the command's structure behind it. What is behind
/// that is not looked at. Whether the command is over, which returns the `count`.
///
/// # Safety
/// There are `count` bytes, or as many as the header says. The answer goes to where the command
/// says, which has as much room as the header says.
pub(crate) unsafe fn begin(
    frame: &mut Frame,
    file: CmFile,
    bytes: *const u8,
    count: usize,
) -> bool {
    const HEADER_BYTES: usize = size_of::<rdma_ucm_cmd_hdr>();
    // As write(2) has it for more than it can tell of.
    let is_possible = (HEADER_BYTES..=isize::MAX.cast_unsigned()).contains(&count);
    if bytes.is_null() || !is_possible {
        return frame.finish(Err(Errno::INVAL));
    }
    // SAFETY: by the caller's promise.
    let header: rdma_ucm_cmd_hdr = read(unsafe { std::slice::from_raw_parts(bytes, HEADER_BYTES) });
    let length = usize::from(header.in_);
    if length > count - HEADER_BYTES {
        return frame.finish(Err(Errno::INVAL));
    }
    let call = Call {
        file,
        // SAFETY: by the caller's promise.
        payload: unsafe { std::slice::from_raw_parts(bytes.add(HEADER_BYTES), length) },
        room: header.out.into(),
    };
    let note = |outcome: Outcome<()>| {
        outcome.map(|()| count.cast_signed()).inspect_err(|errno| {
            let error = std::io::Error::from_raw_os_error(errno.0);
            log::debug!("RDMA-CM command {}: {error}", header.cmd);
        })
    };
    if header.cmd != RDMA_USER_CM_CMD_GET_EVENT {
        // SAFETY: by the caller's promise.
        let outcome = unsafe { call.execute(header.cmd) };
        return frame.finish(note(outcome));
    }
    let (wait, response, room) = match call.get_event() {
        Ok(begun) => begun,
        Err(errno) => return frame.finish(note(Err(errno))),
    };
    blocking::begin(frame, wait, move |event| {
        // SAFETY: by the caller's promise.
        let answered = unsafe { answer(room, response, &event_answer(&event), EVENT_LEAST) };
        Some(answered.map(|()| count.cast_signed()))
    })
}

/// What the oldest librdmacm has room for of an event.
const EVENT_LEAST: usize = std::mem::offset_of!(rdma_ucm_event_resp, reserved);

/// Writes an answer, or as much of it as there is room for: a program may know an earlier, shorter
/// version of it, of at least `least` bytes.
///
/// # Safety
/// There is as much room.
unsafe fn answer<T: Plain>(room: usize, to: u64, answer: &T, least: usize) -> Outcome<()> {
    if room < least {
        return Err(Errno(libc::ENOSPC));
    }
    let Some(to) = usize::try_from(to).ok().filter(|to| *to != 0) else {
        return Err(Errno(libc::EFAULT));
    };
    let bytes = bytes_of(answer);
    let length = bytes.len().min(room);
    // SAFETY: by the caller's promise.
    unsafe {
        let to = std::ptr::with_exposed_provenance_mut(to);
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, length);
    }
    Ok(())
}

/// A command under way.
struct Call<'a> {
    file: CmFile,
    payload: &'a [u8],
    /// Bytes of room for the answer.
    room: usize,
}

/// An error of the device's, as the program gets it.
fn failed(error: std::io::Error) -> Errno {
    Errno::of(&error)
}

impl Call<'_> {
    fn structure<T: Plain>(&self) -> T {
        read(self.payload)
    }

    /// Writes an answer, see [`answer`].
    ///
    /// # Safety
    /// There is as much room as the header said.
    unsafe fn answer<T: Plain>(&self, to: u64, what: &T, least: usize) -> Outcome<()> {
        // SAFETY: by the caller's promise.
        unsafe { answer(self.room, to, what, least) }
    }

    /// # Safety
    /// As [`begin`].
    unsafe fn execute(&self, number: u32) -> Outcome<()> {
        // SAFETY: by the caller's promise, for all of them.
        unsafe {
            match number {
                RDMA_USER_CM_CMD_CREATE_ID => self.create_id(),
                RDMA_USER_CM_CMD_DESTROY_ID => self.destroy_id(),
                RDMA_USER_CM_CMD_BIND_IP => self.bind_ip(),
                RDMA_USER_CM_CMD_BIND => self.bind(),
                RDMA_USER_CM_CMD_RESOLVE_IP => self.resolve_ip(),
                RDMA_USER_CM_CMD_RESOLVE_ADDR => self.resolve_addr(),
                RDMA_USER_CM_CMD_RESOLVE_ROUTE => self.resolve_route(),
                RDMA_USER_CM_CMD_QUERY_ROUTE => self.query_route(),
                RDMA_USER_CM_CMD_QUERY => self.query(),
                RDMA_USER_CM_CMD_CONNECT => self.connect(),
                RDMA_USER_CM_CMD_LISTEN => self.listen(),
                RDMA_USER_CM_CMD_ACCEPT => self.accept(),
                RDMA_USER_CM_CMD_REJECT => self.reject(),
                RDMA_USER_CM_CMD_DISCONNECT => self.disconnect(),
                RDMA_USER_CM_CMD_INIT_QP_ATTR => self.init_qp_attr(),
                RDMA_USER_CM_CMD_SET_OPTION => self.set_option(),
                RDMA_USER_CM_CMD_NOTIFY => self.notify(),
                RDMA_USER_CM_CMD_JOIN_IP_MCAST => self.join_ip_mcast(),
                RDMA_USER_CM_CMD_JOIN_MCAST => self.join_mcast(),
                RDMA_USER_CM_CMD_LEAVE_MCAST => self.leave_mcast(),
                RDMA_USER_CM_CMD_MIGRATE_ID => self.migrate_id(),
                RDMA_USER_CM_CMD_RESOLVE_IB_SERVICE => self.resolve_service(),
                RDMA_USER_CM_CMD_WRITE_CM_EVENT => self.write_event(),
                // GET_OPTION has no implementation in Linux either.
                RDMA_USER_CM_CMD_GET_OPTION => Err(Errno::NOSYS),
                _ => Err(Errno::INVAL),
            }
        }
    }

    // ---- identifiers -------------------------------------------------------------------------

    unsafe fn create_id(&self) -> Outcome<()> {
        let cmd: rdma_ucm_create_id = self.structure();
        let space = PortSpace::from_number(cmd.ps).ok_or(Errno::INVAL)?;
        let qp_type = match space {
            PortSpace::Tcp => CmQpType::Rc,
            PortSpace::Udp | PortSpace::Ipoib => CmQpType::Ud,
            PortSpace::Ib => qp_type(cmd.qp_type.into())?,
        };
        let id = self
            .file
            .create_id(cmd.uid, space, qp_type)
            .map_err(failed)?;
        let answer = rdma_ucm_create_id_resp { id };
        // SAFETY: by the caller's promise.
        unsafe { self.answer(cmd.response, &answer, size_of_val(&answer)) }
    }

    unsafe fn destroy_id(&self) -> Outcome<()> {
        let cmd: rdma_ucm_destroy_id = self.structure();
        let events_reported = self.file.destroy_id(cmd.id).map_err(failed)?;
        let answer = rdma_ucm_destroy_id_resp { events_reported };
        // SAFETY: by the caller's promise.
        unsafe { self.answer(cmd.response, &answer, size_of_val(&answer)) }
    }

    unsafe fn migrate_id(&self) -> Outcome<()> {
        let cmd: rdma_ucm_migrate_id = self.structure();
        let from = cm_table::file(cmd.fd.cast_signed()).ok_or(Errno(libc::EBADF))?;
        let events_reported = self.file.migrate(cmd.id, &from).map_err(failed)?;
        let answer = rdma_ucm_migrate_resp { events_reported };
        // SAFETY: by the caller's promise.
        unsafe { self.answer(cmd.response, &answer, size_of_val(&answer)) }
    }

    fn set_option(&self) -> Outcome<()> {
        let cmd: rdma_ucm_set_option = self.structure();
        if cmd.level == RDMA_OPTION_IB && cmd.optname == RDMA_OPTION_IB_PATH {
            // There is one path, and the kernel's routing table knows it: what a program or ibacm
            // found says no more.
            return self.file.resolve_route(cmd.id).map_err(failed);
        }
        let at: *const u8 = std::ptr::with_exposed_provenance(
            usize::try_from(cmd.optval).map_err(|_| Errno(libc::EFAULT))?,
        );
        let length = usize::try_from(cmd.optlen).map_err(|_| Errno::INVAL)?;
        if at.is_null() {
            return Err(Errno(libc::EFAULT));
        }
        // SAFETY: the command says that so many bytes are there.
        let value = unsafe { std::slice::from_raw_parts(at, length) };
        let byte = || {
            <[u8; 1]>::try_from(value)
                .map(|[byte]| byte)
                .map_err(|_| Errno::INVAL)
        };
        let flag = || {
            <[u8; 4]>::try_from(value)
                .map(|raw| raw != [0; 4])
                .map_err(|_| Errno::INVAL)
        };
        let option = match (cmd.level, cmd.optname) {
            (RDMA_OPTION_ID, RDMA_OPTION_ID_TOS) => CmOption::TypeOfService(byte()?),
            (RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR) => CmOption::ReuseAddress(flag()?),
            (RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY) => CmOption::Ipv6Only(flag()?),
            (RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT) => CmOption::AckTimeout(byte()?),
            _ => return Err(Errno::NOSYS),
        };
        self.file.set_option(cmd.id, option).map_err(failed)
    }

    // ---- addresses ---------------------------------------------------------------------------

    fn bind_ip(&self) -> Outcome<()> {
        let cmd: rdma_ucm_bind_ip = self.structure();
        let address = address_in(&cmd.addr)?.ok_or(Errno::INVAL)?;
        self.file.bind(cmd.id, address).map_err(failed)
    }

    fn bind(&self) -> Outcome<()> {
        let cmd: rdma_ucm_bind = self.structure();
        let raw = raw(&cmd.addr, cmd.addr_size)?;
        if u16::from_ne_bytes([raw[0], raw[1]]) == AF_IB {
            let native: NativeAddress = read(raw);
            if native.address != [0; 16] {
                return Err(Errno(libc::ENODEV));
            }
            return self.file.bind_native(cmd.id).map_err(failed);
        }
        let address = socket_address(raw)?.ok_or(Errno::INVAL)?;
        self.file.bind(cmd.id, address).map_err(failed)
    }

    fn resolve_ip(&self) -> Outcome<()> {
        let cmd: rdma_ucm_resolve_ip = self.structure();
        let destination = address_in(&cmd.dst_addr)?.ok_or(Errno::INVAL)?;
        let source = address_in(&cmd.src_addr)?;
        self.file
            .resolve_address(cmd.id, source, destination)
            .map_err(failed)
    }

    fn resolve_addr(&self) -> Outcome<()> {
        let cmd: rdma_ucm_resolve_addr = self.structure();
        let source = match cmd.src_size {
            0 => None,
            size => socket_address(raw(&cmd.src_addr, size)?)?,
        };
        let destination = socket_address(raw(&cmd.dst_addr, cmd.dst_size)?)?.ok_or(Errno::INVAL)?;
        self.file
            .resolve_address(cmd.id, source, destination)
            .map_err(failed)
    }

    fn resolve_route(&self) -> Outcome<()> {
        let cmd: rdma_ucm_resolve_route = self.structure();
        self.file.resolve_route(cmd.id).map_err(failed)
    }

    fn resolve_service(&self) -> Outcome<()> {
        let cmd: ResolveService = self.structure();
        self.file.resolve_service(cmd.id).map_err(failed)
    }

    unsafe fn query_route(&self) -> Outcome<()> {
        let cmd: rdma_ucm_query = self.structure();
        let info = self.file.query(cmd.id).map_err(failed)?;
        let mut answer = rdma_ucm_query_route_resp::default();
        put_address(info.source, bytes_mut(&mut answer.src_addr));
        put_address(info.destination, bytes_mut(&mut answer.dst_addr));
        if let Some(about) = About::of(&info) {
            answer.node_guid = about.guid;
            answer.ibdev_index = about.index;
            answer.port_num = 1;
            let path = &mut answer.ib_route[0];
            path.sgid = gid(info.source);
            path.dgid = gid(info.destination);
            path.pkey = PKEY.to_be();
            if info.has_route {
                answer.num_paths = 1;
                path.reversible = 1;
                path.numb_path = 1;
                path.mtu_selector = EXACTLY;
                path.mtu = about.mtu.into();
                path.rate_selector = EXACTLY;
                path.packet_life_time_selector = EXACTLY;
                path.packet_life_time = PACKET_LIFE_TIME;
                path.hop_limit = CmAddress::HOP_LIMIT;
                path.traffic_class = info.traffic_class;
            }
        }
        let least = std::mem::offset_of!(rdma_ucm_query_route_resp, ibdev_index);
        // SAFETY: by the caller's promise.
        unsafe { self.answer(cmd.response, &answer, least) }
    }

    unsafe fn query(&self) -> Outcome<()> {
        let cmd: rdma_ucm_query = self.structure();
        let info = self.file.query(cmd.id).map_err(failed)?;
        let least = std::mem::offset_of!(rdma_ucm_query_addr_resp, ibdev_index);
        // SAFETY: by the caller's promise, for all of them.
        unsafe {
            match cmd.option {
                RDMA_USER_CM_QUERY_ADDR => {
                    let mut answer = addresses(&info);
                    let sizes = [
                        put_address(info.source, bytes_mut(&mut answer.src_addr)),
                        put_address(info.destination, bytes_mut(&mut answer.dst_addr)),
                    ];
                    [answer.src_size, answer.dst_size] = sizes;
                    self.answer(cmd.response, &answer, least)
                }
                RDMA_USER_CM_QUERY_GID => {
                    let mut answer = addresses(&info);
                    let size = size_of::<NativeAddress>() as u16;
                    let native = [native(info.source), native(info.destination)];
                    bytes_mut(&mut answer.src_addr)[..size.into()]
                        .copy_from_slice(bytes_of(&native[0]));
                    bytes_mut(&mut answer.dst_addr)[..size.into()]
                        .copy_from_slice(bytes_of(&native[1]));
                    [answer.src_size, answer.dst_size] = [size, size];
                    self.answer(cmd.response, &answer, least)
                }
                RDMA_USER_CM_QUERY_PATH => {
                    let least = std::mem::offset_of!(PathAnswer, path);
                    self.answer(cmd.response, &path_answer(&info), least)
                }
                // There is none: nothing can be resolved.
                RDMA_USER_CM_QUERY_IB_SERVICE if self.room < SERVICE_ANSWER_BYTES => {
                    Err(Errno(libc::ENOSPC))
                }
                RDMA_USER_CM_QUERY_IB_SERVICE => Err(Errno::NODATA),
                _ => Err(Errno::NOSYS),
            }
        }
    }

    // ---- connections -------------------------------------------------------------------------

    fn connect(&self) -> Outcome<()> {
        let cmd: rdma_ucm_connect = self.structure();
        if cmd.conn_param.valid == 0 {
            return Err(Errno::INVAL);
        }
        self.file
            .connect(cmd.id, &connection_param(&cmd.conn_param))
            .map_err(failed)
    }

    fn listen(&self) -> Outcome<()> {
        let cmd: rdma_ucm_listen = self.structure();
        // A negative backlog is as many as possible.
        let backlog = u32::try_from(cmd.backlog.cast_signed()).unwrap_or(0);
        self.file.listen(cmd.id, backlog).map_err(failed)
    }

    fn accept(&self) -> Outcome<()> {
        let cmd: rdma_ucm_accept = self.structure();
        let outcome = if cmd.conn_param.valid == 0 {
            self.file.accept(cmd.id, None, None)
        } else {
            let param = connection_param(&cmd.conn_param);
            self.file.accept(cmd.id, Some(cmd.uid), Some(&param))
        };
        outcome.map_err(failed)
    }

    fn reject(&self) -> Outcome<()> {
        let cmd: rdma_ucm_reject = self.structure();
        let data = &cmd.private_data[..cmd.private_data_len.into()];
        self.file.reject(cmd.id, cmd.reason, data).map_err(failed)
    }

    fn disconnect(&self) -> Outcome<()> {
        let cmd: rdma_ucm_disconnect = self.structure();
        self.file.disconnect(cmd.id).map_err(failed)
    }

    fn notify(&self) -> Outcome<()> {
        let cmd: rdma_ucm_notify = self.structure();
        if cmd.event != IBV_EVENT_COMM_EST {
            return Err(Errno::INVAL);
        }
        self.file.notify_established(cmd.id).map_err(failed)
    }

    unsafe fn init_qp_attr(&self) -> Outcome<()> {
        let cmd: rdma_ucm_init_qp_attr = self.structure();
        let state = match cmd.qp_state {
            IBV_QPS_INIT => QpState::Init,
            IBV_QPS_RTR => QpState::ReadyToReceive,
            IBV_QPS_RTS => QpState::ReadyToSend,
            _ => return Err(Errno::INVAL),
        };
        let attributes = self.file.qp_attributes(cmd.id, state).map_err(failed)?;
        let mut answer = qp_attributes(&attributes);
        answer.qp_state = cmd.qp_state;
        // SAFETY: by the caller's promise.
        unsafe { self.answer(cmd.response, &answer, size_of_val(&answer)) }
    }

    // ---- events and groups -------------------------------------------------------------------

    /// Begins to wait for an event; where it goes then, and how much room is there.
    fn get_event(&self) -> Outcome<(CmWait, u64, usize)> {
        let cmd: rdma_ucm_get_event = self.structure();
        if self.room < EVENT_LEAST {
            return Err(Errno(libc::ENOSPC));
        }
        let wait = self.file.begin_wait().map_err(failed)?;
        Ok((wait, cmd.response, self.room))
    }

    fn write_event(&self) -> Outcome<()> {
        const USER: u32 = CmEventKind::User as u32;
        const INTERNAL: u32 = CmEventKind::Internal as u32;
        let cmd: WriteEvent = self.structure();
        let kind = match cmd.event {
            USER => CmEventKind::User,
            INTERNAL => CmEventKind::Internal,
            _ => return Err(Errno::INVAL),
        };
        let status = cmd.status.cast_signed();
        self.file
            .write_event(cmd.id, kind, status, cmd.argument)
            .map_err(failed)
    }

    unsafe fn join_ip_mcast(&self) -> Outcome<()> {
        let cmd: rdma_ucm_join_ip_mcast = self.structure();
        let group = address_in(&cmd.addr)?.ok_or(Errno::INVAL)?;
        // SAFETY: by the caller's promise.
        unsafe { self.join(cmd.response, cmd.id, cmd.uid, group) }
    }

    unsafe fn join_mcast(&self) -> Outcome<()> {
        let cmd: rdma_ucm_join_mcast = self.structure();
        if u32::from(cmd.join_flags) >= RDMA_MC_JOIN_FLAG_RESERVED {
            return Err(Errno::INVAL);
        }
        let group = socket_address(raw(&cmd.addr, cmd.addr_size)?)?.ok_or(Errno::INVAL)?;
        // SAFETY: by the caller's promise.
        unsafe { self.join(cmd.response, cmd.id, cmd.uid, group) }
    }

    unsafe fn join(&self, response: u64, id: u32, uid: u64, group: SocketAddr) -> Outcome<()> {
        let id = self.file.join(id, uid, group).map_err(failed)?;
        let answer = rdma_ucm_create_id_resp { id };
        // SAFETY: by the caller's promise.
        unsafe { self.answer(response, &answer, size_of_val(&answer)) }
    }

    unsafe fn leave_mcast(&self) -> Outcome<()> {
        let cmd: rdma_ucm_destroy_id = self.structure();
        let events_reported = self.file.leave(cmd.id).map_err(failed)?;
        let answer = rdma_ucm_destroy_id_resp { events_reported };
        // SAFETY: by the caller's promise.
        unsafe { self.answer(cmd.response, &answer, size_of_val(&answer)) }
    }
}

// ---- addresses in structures
// ---------------------------------------------------------------------

// ---- parameters
// ------------------------------------------------------------------------------------
