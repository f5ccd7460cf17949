//! Functions of libraries that we stand before: those that are routed by their arguments, and calls
//! that block.

/// A function of the C interface that blocks, and begins with this step: `name = begin;`
macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident = $begin:path;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As the manual page of the function says that it stands for.
        #[unsafe(naked)]
        pub(crate) unsafe extern "C" fn $name() {
            #[cfg(target_arch = "x86_64")]
            std::arch::naked_asm!(
                "lea r11, [rip + {begin}]",
                "jmp {call}",
                begin = sym $begin,
                call = sym $crate::blocking::call,
            );
            #[cfg(target_arch = "aarch64")]
            std::arch::naked_asm!(
                "adrp x16, {begin}",
                "add x16, x16, :lo12:{begin}",
                "b {call}",
                begin = sym $begin,
                call = sym $crate::blocking::call,
            );
        }
    )*};
}
pub(crate) use calls;

/// A function of the C interface, of at most six arguments, that another one answers: which,
/// `route` says. The thread jumps there, and so may be cancelled in a function of libc without a
/// frame of ours below it.
macro_rules! routed {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty = $route:path;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As its manual page says.
        #[unsafe(naked)]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
            #[cfg(target_arch = "x86_64")]
            std::arch::naked_asm!(
                ".cfi_startproc",
                "push rdi",
                "push rsi",
                "push rdx",
                "push rcx",
                "push r8",
                "push r9",
                "sub rsp, 8",
                ".cfi_adjust_cfa_offset 56",
                "call {route}",
                "add rsp, 8",
                "pop r9",
                "pop r8",
                "pop rcx",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                ".cfi_adjust_cfa_offset -56",
                "jmp rax",
                ".cfi_endproc",
                route = sym $route,
            );
            #[cfg(target_arch = "aarch64")]
            std::arch::naked_asm!(
                ".cfi_startproc",
                "stp x29, x30, [sp, #-64]!",
                ".cfi_def_cfa_offset 64",
                ".cfi_offset x29, -64",
                ".cfi_offset x30, -56",
                "stp x0, x1, [sp, #16]",
                "stp x2, x3, [sp, #32]",
                "stp x4, x5, [sp, #48]",
                "bl {route}",
                "mov x16, x0",
                "ldp x4, x5, [sp, #48]",
                "ldp x2, x3, [sp, #32]",
                "ldp x0, x1, [sp, #16]",
                "ldp x29, x30, [sp], #64",
                ".cfi_def_cfa_offset 0",
                "br x16",
                ".cfi_endproc",
                route = sym $route,
            );
        }
    )*};
}
pub(crate) use routed;
