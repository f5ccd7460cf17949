//! Guarded calls on 64-bit ARM, and what a signal handler changes of the registers.

use libc::c_void;

use super::{Outcome, urxe_guard_failed};

// As on x86-64. The address of a variable of the thread is its thread pointer and an offset that is
// known once the library is loaded.
std::arch::global_asm!(
    ".pushsection .tbss.urxe_guard,\"awT\",@nobits",
    ".p2align 3",
    ".type urxe_guard_frame,@object",
    "urxe_guard_frame:",
    ".zero 8",
    ".size urxe_guard_frame, 8",
    ".type urxe_guard_ready,@object",
    "urxe_guard_ready:",
    ".zero 8",
    ".size urxe_guard_ready, 8",
    ".popsection",
    ".macro urxe_guard_address variable",
    "adrp x9, :gottprel:\\variable",
    "ldr x9, [x9, :gottprel_lo12:\\variable]",
    "mrs x10, tpidr_el0",
    "add x9, x9, x10",
    ".endm",
    // Outcome urxe_guard_call(void (*run)(void *), void *argument)
    ".globl urxe_guard_call",
    ".hidden urxe_guard_call",
    ".type urxe_guard_call,@function",
    "urxe_guard_call:",
    "urxe_guard_address urxe_guard_ready",
    "ldr x9, [x9]",
    "cbz x9, 3f",
    "stp x29, x30, [sp, #-160]!",
    "mov x29, sp",
    "stp x19, x20, [sp, #16]",
    "stp x21, x22, [sp, #32]",
    "stp x23, x24, [sp, #48]",
    "stp x25, x26, [sp, #64]",
    "stp x27, x28, [sp, #80]",
    "stp d8, d9, [sp, #96]",
    "stp d10, d11, [sp, #112]",
    "stp d12, d13, [sp, #128]",
    "stp d14, d15, [sp, #144]",
    "urxe_guard_address urxe_guard_frame",
    "mov x10, sp",
    "str x10, [x9]",
    "mov x8, x0",
    "mov x0, x1",
    "blr x8",
    "mov x0, xzr",
    // Where the handler goes on, with the stack pointer that was left, and the outcome in x0 and
    // x1.
    ".globl urxe_guard_failed",
    ".hidden urxe_guard_failed",
    "urxe_guard_failed:",
    "urxe_guard_address urxe_guard_frame",
    "str xzr, [x9]",
    "ldp d14, d15, [sp, #144]",
    "ldp d12, d13, [sp, #128]",
    "ldp d10, d11, [sp, #112]",
    "ldp d8, d9, [sp, #96]",
    "ldp x27, x28, [sp, #80]",
    "ldp x25, x26, [sp, #64]",
    "ldp x23, x24, [sp, #48]",
    "ldp x21, x22, [sp, #32]",
    "ldp x19, x20, [sp, #16]",
    "ldp x29, x30, [sp], #160",
    "ret",
    "3:",
    "mov x0, #{blocked}",
    "ret",
    ".size urxe_guard_call, . - urxe_guard_call",
    // uint64_t urxe_guard_frame_now(void)
    ".globl urxe_guard_frame_now",
    ".hidden urxe_guard_frame_now",
    ".type urxe_guard_frame_now,@function",
    "urxe_guard_frame_now:",
    "urxe_guard_address urxe_guard_frame",
    "ldr x0, [x9]",
    "ret",
    ".size urxe_guard_frame_now, . - urxe_guard_frame_now",
    // void urxe_guard_set_frame(uint64_t frame)
    ".globl urxe_guard_set_frame",
    ".hidden urxe_guard_set_frame",
    ".type urxe_guard_set_frame,@function",
    "urxe_guard_set_frame:",
    "urxe_guard_address urxe_guard_frame",
    "str x0, [x9]",
    "ret",
    ".size urxe_guard_set_frame, . - urxe_guard_set_frame",
    // void urxe_guard_set_ready(uint64_t is_ready)
    ".globl urxe_guard_set_ready",
    ".hidden urxe_guard_set_ready",
    ".type urxe_guard_set_ready,@function",
    "urxe_guard_set_ready:",
    "urxe_guard_address urxe_guard_ready",
    "str x0, [x9]",
    "ret",
    ".size urxe_guard_set_ready, . - urxe_guard_set_ready",
    blocked = const Outcome::BLOCKED,
);

/// Lets the interrupted access end with `outcome`.
///
/// # Safety
/// `context` is that of a thread that was interrupted in a guarded access, whose frame this is.
pub(in crate::process::guard) unsafe fn leave(context: *mut c_void, frame: u64, outcome: &Outcome) {
    // SAFETY: by the caller's promise.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext };
    registers.sp = frame;
    registers.pc = urxe_guard_failed as *const () as u64;
    registers.regs[0] = outcome.code;
    registers.regs[1] = outcome.at;
}
