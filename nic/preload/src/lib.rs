//! liburxe.so: gives an unmodified libibverbs program devices made of UDP sockets.
//!
//! The library is preloaded (`urxe run`). It defines libibverbs's public symbols ([`exports`]);
//! what concerns a device of ours is answered here, everything else by the libibverbs behind us
//! ([`next`]), which refuses for ours what it alone knows ([`dispatch`]). Programs reach the rest
//! through pointers in the objects they hold: [`operations`] in a context, [`qp_ex`] and [`cq_ex`]
//! in the extended queue pair and completion queue.
//!
//! This crate translates, and does nothing else: what a device does is in `urxe-device`. A program
//! that never touches verbs pays a comparison per file it names, see [`files`].
//!
//! | object | C struct | behind it | owner |
//! |---|---|---|---|
//! | device | `verbs_device` | [`device`] | the process, never freed |
//! | context | `verbs_context` | [`context`] | the program, until `ibv_close_device` |
//! | PD, thread domain | `ibv_pd`, `ibv_td` | [`pd`] | the program |
//! | MR, device memory, buffer | `ibv_mr`, `ibv_dm`, `ibv_buf` | [`memory`] (by descriptor: [`dmabuf`]), [`dm`], [`buffers`] | the program |
//! | channel, CQ | `ibv_comp_channel`, `ibv_cq_ex` | [`channel`], [`cq`] | the program |
//! | file, folder in `/sys` | none: libc's functions | [`tree`], [`sysfs`], [`descriptors`] | the program, until it closes the descriptor |
//! | netlink socket | messages of <rdma/rdma_netlink.h> | [`netlink`], [`nldev`] | the program, until it closes the descriptor |
//! | RDMA-CM | commands of <rdma/rdma_user_cm.h> | [`cm`], [`cm_files`] | the program, until it closes the descriptor |
//! | QP | `ibv_qp_ex` | [`qp`] | the program |
//! | SRQ, XRC domain | `ibv_srq`, `ibv_xrcd` | [`srq`], [`xrc`] | the program |
//! | AH, MW | `ibv_ah`, `ibv_mw` | [`ah`], [`mw`] | the program |
//!
//! All of `unsafe` that the C interface needs is here; each object is one [`handle::Handle`].

#![cfg_attr(
    test,
    allow(
        dead_code,
        reason = "a test program does not export the symbols, so nothing is reached"
    )
)]
#![allow(
    unreachable_pub,
    reason = "symbols are public to the dynamic linker, whatever Rust calls them"
)]

mod abi;
mod ah;
mod blocking;
mod buffers;
mod channel;
mod cm;
mod cm_abi;
mod cm_convert;
mod cm_files;
mod cm_table;
mod context;
mod convert;
mod cq;
mod cq_ex;
mod cq_state;
mod cwd;
mod descriptors;
mod device;
mod dispatch;
mod dl;
mod dm;
mod dmabuf;
mod elf;
mod errno;
mod events;
mod exports;
mod files;
mod folders;
mod fork;
mod fts;
mod gid;
mod globs;
mod handle;
mod kernel_files;
mod kind;
mod libc_dl;
mod lists;
mod masks;
mod memory;
mod mw;
mod netlink;
mod next;
mod nldev;
mod object;
mod objects;
mod of_process;
mod opening;
mod operations;
mod paths;
mod pd;
mod port;
mod post;
mod qp;
mod qp_ex;
mod qp_state;
mod query;
mod registry;
mod report;
mod reported;
mod requests;
mod routed;
mod signals;
mod speed;
mod srq;
mod sysfs;
mod sysfs_file;
mod tree;
mod unsupported;
mod walks;
mod wall_clock;
mod working_folder;
mod xrc;
