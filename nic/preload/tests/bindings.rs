//! The bindings in `nic/preload/bindings` are what bindgen makes of the installed headers.
//!
//! They are kept, so that building liburxe.so needs no header and no libclang. `make bindings`
//! writes them again. Other releases of rdma-core have other headers; what of those programs use is
//! in `abi/newer.rs`.
use std::path::{Path, PathBuf};
use std::process::Command;

use bindgen::{Builder, RustTarget};

/// libibverbs as pkg-config calls the release of rdma-core that the bindings are of, 44.
const RELEASE: &str = "1.14.44.0";
/// Where the test is to write what it would compare.
const WRITE: &str = "URXE_WRITE_BINDINGS";

/// What both have in common. `pthread_mutex_t` and `pthread_cond_t` are of other sizes on each
/// architecture, so they are libc's.
fn builder(name: &str, headers: &[&str]) -> Builder {
    let includes: String = headers
        .iter()
        .map(|header| format!("#include <{header}>\n"))
        .collect();
    Builder::default()
        .header_contents(name, &includes)
        .blocklist_type("pthread_.*|__pthread_.*")
        .prepend_enum_name(false)
        .default_enum_style(bindgen::EnumVariation::Consts)
        .derive_default(true)
        .derive_debug(false)
        .generate_comments(false)
        .layout_tests(false)
        // The first compiler that has the edition.
        .rust_target(RustTarget::stable(85, 0).expect("bindgen knows 1.85"))
        .rust_edition(bindgen::RustEdition::Edition2024)
}

/// The verbs.
fn verbs() -> Builder {
    builder("urxe_wrapper.h", &["infiniband/verbs.h"])
        .raw_line("use libc::{pthread_cond_t, pthread_mutex_t};")
        .allowlist_type("(ibv|verbs)_.*")
        .allowlist_type("_compat_ibv_port_attr")
        .allowlist_type("ib_uverbs_advise_mr_flag")
        .allowlist_var("(IBV|IB|VERBS)_.*")
        .merge_extern_blocks(true)
}

/// The kernel's interface to communication management, and the structures that pass through it.
fn rdma_cm() -> Builder {
    builder(
        "urxe_cm_wrapper.h",
        &["rdma/rdma_user_cm.h", "rdma/ib_user_verbs.h"],
    )
    .allowlist_type("rdma_ucm_.*")
    .allowlist_type("ib_user_path_rec|ib_path_rec_data|ib_uverbs_(qp_attr|ah_attr)")
    .allowlist_var("RDMA_(USER_CM_|OPTION_|PS_|MAX_PRIVATE|MC_JOIN).*")
    .allowlist_var("IB_PATH_.*")
}

fn kept(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("bindings")
        .join(name)
}

fn installed() -> Option<String> {
    let output = Command::new("pkg-config")
        .args(["--modversion", "libibverbs"])
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

#[test]
fn bindings_are_those_of_the_installed_headers() {
    let installed = installed();
    if installed.as_deref() != Some(RELEASE) {
        eprintln!(
            "skipped: the bindings are of libibverbs {RELEASE}, and its headers here are {}",
            installed.as_deref().unwrap_or("not installed")
        );
        return;
    }
    for (name, builder) in [("verbs.rs", verbs()), ("rdma_cm.rs", rdma_cm())] {
        let made = builder
            .generate()
            .unwrap_or_else(|error| panic!("cannot make {name} from the headers: {error}"))
            .to_string();
        let path = kept(name);
        if std::env::var_os(WRITE).is_some() {
            std::fs::write(&path, &made).unwrap();
        }
        // Not assert_eq, which would print thousands of lines.
        let same = std::fs::read_to_string(&path).is_ok_and(|text| text == made);
        assert!(
            same,
            "{} is not what the headers say: run `make bindings`, and see what changed",
            path.display()
        );
    }
}
