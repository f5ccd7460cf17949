//! Guarded calls on x86-64, and what a signal handler changes of the registers.

use libc::c_void;

use super::{Outcome, urxe_guard_failed};

// A guarded access leaves its stack pointer in a variable of the thread; 0 otherwise. That is no
// thread_local!: its first use in a thread may allocate, which a signal handler must not.
// (`gottpoff` is the "initial exec" model of thread-local storage, an address that is known once
// the library is loaded.)
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
    // Outcome urxe_guard_call(void (*run)(void *), void *argument)
    ".globl urxe_guard_call",
    ".hidden urxe_guard_call",
    ".type urxe_guard_call,@function",
    "urxe_guard_call:",
    "mov rax, qword ptr [rip + urxe_guard_ready@gottpoff]",
    "cmp qword ptr fs:[rax], 0",
    "je 3f",
    "push rbp",
    "push rbx",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "sub rsp, 8",
    "mov rax, qword ptr [rip + urxe_guard_frame@gottpoff]",
    "mov qword ptr fs:[rax], rsp",
    "mov rax, rdi",
    "mov rdi, rsi",
    "call rax",
    "xor eax, eax",
    // Where the handler goes on, with the stack pointer that was left, and the outcome in rax and
    // rdx.
    ".globl urxe_guard_failed",
    ".hidden urxe_guard_failed",
    "urxe_guard_failed:",
    "mov rcx, qword ptr [rip + urxe_guard_frame@gottpoff]",
    "mov qword ptr fs:[rcx], 0",
    "add rsp, 8",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbx",
    "pop rbp",
    "ret",
    "3:",
    "mov eax, {blocked}",
    "ret",
    ".size urxe_guard_call, . - urxe_guard_call",
    // uint64_t urxe_guard_frame_now(void)
    ".globl urxe_guard_frame_now",
    ".hidden urxe_guard_frame_now",
    ".type urxe_guard_frame_now,@function",
    "urxe_guard_frame_now:",
    "mov rax, qword ptr [rip + urxe_guard_frame@gottpoff]",
    "mov rax, qword ptr fs:[rax]",
    "ret",
    ".size urxe_guard_frame_now, . - urxe_guard_frame_now",
    // void urxe_guard_set_frame(uint64_t frame)
    ".globl urxe_guard_set_frame",
    ".hidden urxe_guard_set_frame",
    ".type urxe_guard_set_frame,@function",
    "urxe_guard_set_frame:",
    "mov rax, qword ptr [rip + urxe_guard_frame@gottpoff]",
    "mov qword ptr fs:[rax], rdi",
    "ret",
    ".size urxe_guard_set_frame, . - urxe_guard_set_frame",
    // void urxe_guard_set_ready(uint64_t is_ready)
    ".globl urxe_guard_set_ready",
    ".hidden urxe_guard_set_ready",
    ".type urxe_guard_set_ready,@function",
    "urxe_guard_set_ready:",
    "mov rax, qword ptr [rip + urxe_guard_ready@gottpoff]",
    "mov qword ptr fs:[rax], rdi",
    "ret",
    ".size urxe_guard_set_ready, . - urxe_guard_set_ready",
    blocked = const Outcome::BLOCKED,
);

/// Lets the interrupted access end with `outcome`.
///
/// # Safety
/// `context` is that of a thread that was interrupted in a guarded access, whose frame this is.
pub(in crate::process::guard) unsafe fn leave(context: *mut c_void, frame: u64, outcome: &Outcome) {
    /// The direction flag of EFLAGS, which functions expect to be clear.
    const DIRECTION: i64 = 1 << 10;
    // SAFETY: by the caller's promise.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    registers[libc::REG_RSP as usize] = frame.cast_signed();
    registers[libc::REG_RIP as usize] = urxe_guard_failed as *const () as i64;
    registers[libc::REG_RAX as usize] = outcome.code.cast_signed();
    registers[libc::REG_RDX as usize] = outcome.at.cast_signed();
    registers[libc::REG_EFL as usize] &= !DIRECTION;
}
