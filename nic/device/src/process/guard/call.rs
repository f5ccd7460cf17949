//! A call that a handler of faults can end: written in assembly for each kind of machine.

#[cfg(target_arch = "aarch64")]
#[path = "aarch64.rs"]
mod machine;
#[cfg(target_arch = "x86_64")]
#[path = "x86_64.rs"]
mod machine;

pub(super) use machine::leave;

// Written in assembly for each kind of machine.
unsafe extern "C" {
    /// # Safety
    /// As `guarded`; `run` takes `argument`.
    pub(super) fn urxe_guard_call(
        run: unsafe extern "C" fn(*mut libc::c_void),
        argument: *mut libc::c_void,
    ) -> Outcome;
    pub(super) safe fn urxe_guard_frame_now() -> u64;
    pub(super) safe fn urxe_guard_set_frame(frame: u64);
    pub(super) safe fn urxe_guard_set_ready(is_ready: u64);
    /// No function: only its address counts.
    pub(super) fn urxe_guard_failed();
}

/// What came of an access, in two registers.
#[repr(C)]
pub(super) struct Outcome {
    pub(super) code: u64,
    /// Of a fault: the address.
    pub(super) at: u64,
}

impl Outcome {
    pub(super) const DONE: u64 = 0;
    /// Nothing is mapped there, or no more of a file.
    pub(super) const GONE: u64 = 1;
    /// What is mapped there may not be accessed so.
    pub(super) const PROTECTED: u64 = 2;
    /// Nothing was done: the thread may have the signals blocked.
    pub(super) const BLOCKED: u64 = 3;
}
