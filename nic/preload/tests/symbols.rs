//! Every public symbol of libibverbs is either ours or deliberately libibverbs's.
mod common;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Left to libibverbs; the reasons stand in `src/exports.rs`.
const LEFT: &[&str] = &[
    // Functions of values alone.
    "ibv_copy_ah_attr_from_kern",
    "ibv_copy_path_rec_from_kern",
    "ibv_copy_path_rec_to_kern",
    "ibv_copy_qp_attr_from_kern",
    "ibv_event_type_str",
    "ibv_get_sysfs_path",
    "ibv_node_type_str",
    "ibv_port_state_str",
    "ibv_rate_to_mbps",
    "ibv_rate_to_mult",
    "ibv_wc_status_str",
    "ibv_wr_opcode_str",
    "mbps_to_ibv_rate",
    "mult_to_ibv_rate",
    // Fork support of memory that is reached by DMA.
    "ibv_dofork_range",
    "ibv_dontfork_range",
    "ibv_fork_init",
    "ibv_is_fork_initialized",
    // For drivers.
    "ibv_register_driver",
];

/// Functions of libc that we stand in front of.
const LIBC: &[&str] = &[
    "__fxstat",
    "__fxstat64",
    "__fxstatat",
    "__fxstatat64",
    "__getcwd_chk",
    "__longjmp_chk",
    "__lxstat",
    "__lxstat64",
    "__open64_2",
    "__open_2",
    "__openat64_2",
    "__openat_2",
    "__pread64_chk",
    "__pread_chk",
    "__read_chk",
    "__readlink_chk",
    "__readlinkat_chk",
    "__realpath_chk",
    "__sysv_signal",
    "__xstat",
    "__xstat64",
    "access",
    "bind",
    "bsd_signal",
    "canonicalize_file_name",
    "chdir",
    "close",
    "closedir",
    "dirfd",
    "dlsym",
    "dlvsym",
    "eaccess",
    "euidaccess",
    "faccessat",
    "fchdir",
    "fdopendir",
    "fopen",
    "fopen64",
    "fstat",
    "fstat64",
    "fstatat",
    "fstatat64",
    "fstatfs",
    "fstatfs64",
    "fts64_children",
    "fts64_close",
    "fts64_open",
    "fts64_read",
    "fts64_set",
    "fts_children",
    "fts_close",
    "fts_open",
    "fts_read",
    "fts_set",
    "ftw",
    "ftw64",
    "get_current_dir_name",
    "getcwd",
    "getsockname",
    "getwd",
    "getxattr",
    "glob",
    "glob64",
    "ioctl",
    "lgetxattr",
    "listxattr",
    "llistxattr",
    "longjmp",
    "lstat",
    "lstat64",
    "nftw",
    "nftw64",
    "open",
    "open64",
    "openat",
    "openat64",
    "opendir",
    "pread",
    "pread64",
    "pthread_sigmask",
    "read",
    "readdir",
    "readdir64",
    "readdir64_r",
    "readdir_r",
    "readlink",
    "readlinkat",
    "realpath",
    "rewinddir",
    "scandir",
    "scandir64",
    "scandirat",
    "scandirat64",
    "seekdir",
    "setcontext",
    "setsockopt",
    "sigaction",
    "sigblock",
    "sighold",
    "sigignore",
    "siginterrupt",
    "siglongjmp",
    "signal",
    "sigprocmask",
    "sigset",
    "sigsetmask",
    "socket",
    "ssignal",
    "stat",
    "stat64",
    "statfs",
    "statfs64",
    "statx",
    "swapcontext",
    "sysv_signal",
    "telldir",
    "write",
];

/// Verbs that libibverbs here may be too old to have.
const NEWER: &[&str] = &[
    // Release 60.
    "ibv_dm_export_dmabuf_fd",
    "ibv_query_port_speed",
    "ibv_reg_mr_ex",
    // Release 64.
    "ibv_alloc_buf",
    "ibv_export_buf_dmabuf_fd",
    "ibv_free_buf",
    "ibv_reg_buf_mr",
];

/// Private symbols of libibverbs that programs use all the same.
const PRIVATE: &[&str] = &["ibv_query_gid_type"];

/// The symbols that a library defines for others, as `name@version`.
fn defined(library: &Path) -> BTreeSet<String> {
    let output = Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(library)
        .output()
        .expect("nm is needed (Debian: apt-get install binutils)");
    assert!(output.status.success(), "{}", common::shown(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .map(|line| line.rsplit(' ').next().unwrap().to_owned())
        .collect()
}

fn libibverbs() -> BTreeSet<String> {
    let output = Command::new("cc")
        .arg("-print-file-name=libibverbs.so.1")
        .output()
        .unwrap();
    let path = String::from_utf8(output.stdout).unwrap();
    let path = Path::new(path.trim());
    assert!(
        path.is_absolute(),
        "libibverbs.so.1 is needed (Debian: apt-get install libibverbs1)"
    );
    defined(path)
}

#[test]
fn every_public_symbol_is_defined_or_left_on_purpose() {
    let ours = defined(&common::library());
    let public: BTreeSet<String> = libibverbs()
        .iter()
        .filter(|symbol| !symbol.contains("IBVERBS_PRIVATE") && symbol.contains('@'))
        .map(|symbol| symbol.split('@').next().unwrap().to_owned())
        .collect();
    assert!(public.len() > 70, "{public:?}");
    let missing: Vec<_> = public
        .iter()
        .filter(|name| !ours.contains(*name) && !LEFT.contains(&name.as_str()))
        .collect();
    assert!(
        missing.is_empty(),
        "neither ours nor in the list of those left: {missing:?}"
    );
    let both: Vec<_> = LEFT.iter().filter(|name| ours.contains(**name)).collect();
    assert!(
        both.is_empty(),
        "ours and in the list of those left: {both:?}"
    );
}

#[test]
fn nothing_else_is_exported() {
    let theirs: BTreeSet<String> = libibverbs()
        .iter()
        .filter(|symbol| !symbol.contains("IBVERBS_PRIVATE"))
        .map(|symbol| symbol.split('@').next().unwrap().to_owned())
        .collect();
    let stray: Vec<_> = defined(&common::library())
        .into_iter()
        .filter(|name| {
            !theirs.contains(name)
                && !LIBC.contains(&name.as_str())
                && !PRIVATE.contains(&name.as_str())
                && !NEWER.contains(&name.as_str())
        })
        .collect();
    assert!(
        stray.is_empty(),
        "exported, but not a symbol of libibverbs or libc: {stray:?}"
    );
}
