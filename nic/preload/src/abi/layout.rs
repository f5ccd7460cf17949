//! Struct layout against the C compiler: bindgen derives it from what libclang says, programs were
//! compiled by gcc. The table names fields once; a C program made from it prints where they are.
use std::collections::BTreeMap;
use std::fmt::Write;
use std::mem::offset_of;
use std::process::Command;

use super::*;

/// What is where: `sizeof struct` and `struct.field` to bytes.
type Layout = BTreeMap<String, usize>;

macro_rules! layout {
    ($($name:ident { $($field:ident),* $(,)? })*) => {
        fn in_rust() -> Layout {
            let mut layout = Layout::new();
            $(
                layout.insert(format!("sizeof {}", stringify!($name)), size_of::<$name>());
                $(layout.insert(
                    format!("{}.{}", stringify!($name), stringify!($field)),
                    offset_of!($name, $field),
                );)*
            )*
            layout
        }

        fn c_source() -> String {
            let mut c = String::from(
                "#include <infiniband/verbs.h>\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {\n",
            );
            $(
                let name = stringify!($name);
                writeln!(c, "printf(\"sizeof {name}=%zu\\n\", sizeof(struct {name}));").unwrap();
                $(
                    let field = stringify!($field).trim_start_matches("r#").trim_end_matches('_');
                    writeln!(
                        c,
                        "printf(\"{name}.{}=%zu\\n\", offsetof(struct {name}, {field}));",
                        stringify!($field),
                    )
                    .unwrap();
                )*
            )*
            c + "return 0;\n}\n"
        }
    };
}

layout! {
    ibv_device { _ops, node_type, transport_type, name, dev_name, dev_path, ibdev_path }
    ibv_context { device, ops, cmd_fd, async_fd, num_comp_vectors, mutex, abi_compat }
    ibv_context_ops { alloc_mw, bind_mw, dealloc_mw, poll_cq, req_notify_cq, post_srq_recv, post_send, post_recv }
    verbs_context {
        query_port, advise_mr, alloc_null_mr, create_counters, reg_dm_mr, alloc_dm, modify_qp_rate_limit,
        alloc_parent_domain, alloc_td, modify_cq, create_wq, create_cq_ex, priv_, query_device_ex,
        ibv_create_flow, open_qp, create_qp_ex, create_srq_ex, open_xrcd, close_xrcd, sz, context,
    }
    ibv_device_attr { node_guid, max_mr_size, vendor_id, max_qp, device_cap_flags, atomic_cap, max_srq_sge, max_pkeys, phys_port_cnt }
    ibv_device_attr_ex { comp_mask, odp_caps, completion_timestamp_mask, tso_caps, rss_caps, tm_caps, max_dm_size, phys_port_cnt_ex }
    ibv_port_attr { state, active_mtu, gid_tbl_len, max_msg_sz, pkey_tbl_len, lid, active_width, link_layer, flags, port_cap_flags2 }
    ibv_gid_entry { gid, gid_index, port_num, gid_type, ndev_ifindex }
    ibv_pd { context, handle }
    ibv_mr { context, pd, addr, length, handle, lkey, rkey }
    ibv_comp_channel { context, fd, refcnt }
    ibv_cq { context, channel, cq_context, handle, cqe, mutex, cond, comp_events_completed, async_events_completed }
    ibv_cq_ex {
        context, cqe, comp_mask, status, wr_id, start_poll, next_poll, end_poll, read_opcode, read_byte_len,
        read_imm_data, read_qp_num, read_wc_flags, read_completion_ts, read_completion_wallclock_ns,
    }
    ibv_cq_init_attr_ex { cqe, cq_context, channel, comp_vector, wc_flags, comp_mask, flags, parent_domain }
    ibv_wc { wr_id, status, opcode, vendor_err, byte_len, qp_num, src_qp, wc_flags, pkey_index, slid, sl, dlid_path_bits }
    ibv_qp { context, qp_context, pd, send_cq, recv_cq, srq, handle, qp_num, state, qp_type, mutex, events_completed }
    ibv_qp_ex {
        qp_base, comp_mask, wr_id, wr_flags, wr_atomic_cmp_swp, wr_atomic_fetch_add, wr_rdma_read, wr_rdma_write,
        wr_rdma_write_imm, wr_send, wr_send_imm, wr_send_inv, wr_set_inline_data, wr_set_inline_data_list,
        wr_set_sge, wr_set_sge_list, wr_start, wr_complete, wr_abort, wr_atomic_write,
    }
    ibv_qp_init_attr { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all }
    ibv_qp_init_attr_ex { cap, qp_type, sq_sig_all, comp_mask, pd, xrcd, create_flags, max_tso_header, send_ops_flags }
    ibv_qp_attr {
        qp_state, cur_qp_state, path_mtu, path_mig_state, qkey, rq_psn, sq_psn, dest_qp_num, qp_access_flags, cap,
        ah_attr, alt_ah_attr, pkey_index, en_sqd_async_notify, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer,
        port_num, timeout, retry_cnt, rnr_retry, rate_limit,
    }
    ibv_ah_attr { grh, dlid, sl, is_global, port_num }
    ibv_global_route { dgid, flow_label, sgid_index, hop_limit, traffic_class }
    ibv_sge { addr, length, lkey }
    ibv_data_buf { addr, length }
    ibv_send_wr { wr_id, next, sg_list, num_sge, opcode, send_flags, wr, qp_type }
    ibv_recv_wr { wr_id, next, sg_list, num_sge }
    ibv_async_event { element, event_type }
    ibv_ece { vendor_id, options, comp_mask }
}

#[test]
fn structs_are_laid_out_as_the_c_compiler_lays_them_out() {
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("layout.c"), folder.path().join("layout"));
    std::fs::write(&source, c_source()).unwrap();
    let compiled = Command::new("cc")
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .status()
        .unwrap();
    assert!(compiled.success(), "the C compiler refused the program");
    let output = Command::new(&program).output().unwrap();
    let in_c: Layout = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| line.split_once('=').unwrap())
        .map(|(what, bytes)| (what.to_owned(), bytes.parse().unwrap()))
        .collect();
    let in_rust = in_rust();
    assert!(in_rust.len() > 150);
    assert_eq!(in_rust, in_c);
}

#[test]
fn a_device_is_followed_by_the_word_that_tells_whose_it_is() {
    assert_eq!(offset_of!(VerbsDevice, ops), size_of::<ibv_device>());
    let mut device = VerbsDevice::new(ibv_device::default());
    // SAFETY: laid out as it has to be.
    unsafe {
        assert!(is_our_device((&raw const device).cast()));
        device.ops = std::ptr::null();
        assert!(!is_our_device((&raw const device).cast()));
        assert!(!is_our_device(std::ptr::null()));
    }
}
