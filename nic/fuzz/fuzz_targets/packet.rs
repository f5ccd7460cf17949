//! See `urxe_inputs::packet`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| urxe_inputs::packet::run(bytes));
