//! See `urxe_inputs::ddp`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| urxe_inputs::ddp::run(bytes));
