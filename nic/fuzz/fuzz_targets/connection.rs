//! See `urxe_inputs::connection`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| urxe_inputs::connection::run(bytes));
