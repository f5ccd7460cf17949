//! See `urxe_inputs::cm`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| urxe_inputs::cm::run(bytes));
