//! See `urxe_inputs::rdmap`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| urxe_inputs::rdmap::run(bytes));
