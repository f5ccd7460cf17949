//! Generates the C ABI of libibverbs from the system's <infiniband/verbs.h>, so that struct layout
//! is never written down twice.
use std::path::PathBuf;

const HEADER: &str = "infiniband/verbs.h";
/// The kernel's interface to communication management, and the structures that pass through it.
const CM_HEADERS: [&str; 2] = ["rdma/rdma_user_cm.h", "rdma/ib_user_verbs.h"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let bindings = bindgen::Builder::default()
        .header_contents("urxe_wrapper.h", &format!("#include <{HEADER}>\n"))
        .allowlist_type("(ibv|verbs)_.*")
        .allowlist_type("_compat_ibv_port_attr")
        .allowlist_type("ib_uverbs_advise_mr_flag")
        .allowlist_var("(IBV|IB|VERBS)_.*")
        .prepend_enum_name(false)
        .default_enum_style(bindgen::EnumVariation::Consts)
        .derive_default(true)
        .derive_debug(false)
        .generate_comments(false)
        .layout_tests(true)
        .merge_extern_blocks(true)
        .rust_edition(bindgen::RustEdition::Edition2024)
        .generate()
        .unwrap_or_else(|error| {
            panic!(
                "cannot read <{HEADER}>: {error}\n\
                 The C headers of libibverbs and libclang are needed to build liburxe.so; \
                 on Debian: apt-get install libibverbs-dev libclang-dev"
            )
        });
    let cm_bindings = bindgen::Builder::default()
        .header_contents(
            "urxe_cm_wrapper.h",
            &CM_HEADERS
                .map(|header| format!("#include <{header}>\n"))
                .concat(),
        )
        .allowlist_type("rdma_ucm_.*")
        .allowlist_type("ib_user_path_rec|ib_path_rec_data|ib_uverbs_(qp_attr|ah_attr)")
        .allowlist_var("RDMA_(USER_CM_|OPTION_|PS_|MAX_PRIVATE|MC_JOIN).*")
        .allowlist_var("IB_PATH_.*")
        .prepend_enum_name(false)
        .default_enum_style(bindgen::EnumVariation::Consts)
        .derive_default(true)
        .derive_debug(false)
        .generate_comments(false)
        .layout_tests(true)
        .rust_edition(bindgen::RustEdition::Edition2024)
        .generate()
        .unwrap_or_else(|error| {
            panic!(
                "cannot read <{}>: {error}\n\
                 The kernel's headers are needed to build liburxe.so; \
                 on Debian: apt-get install linux-libc-dev",
                CM_HEADERS[0]
            )
        });
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    bindings
        .write_to_file(out.join("verbs.rs"))
        .expect("OUT_DIR can be written");
    cm_bindings
        .write_to_file(out.join("rdma_cm.rs"))
        .expect("OUT_DIR can be written");
}
