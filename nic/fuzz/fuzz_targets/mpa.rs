//! See `urxe_inputs::mpa`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| urxe_inputs::mpa::run(bytes));
