//! See `urxe_inputs::queue_pair`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| urxe_inputs::queue_pair::run(bytes));
