//! Access to the program's memory that survives when the memory is gone: the program may unmap what it has registered, or
//! cut short the file behind it, and what a peer asks for then must not end the process.
//!
//! Hardware pins the pages of a region. Nothing here does, and to ask the kernel before each access would cost a system
//! call. So the access happens, and if it raises SIGSEGV or SIGBUS, a handler returns from it with an error: what was
//! placed until then stays. An access without a fault pays for six registers on the stack: as much as a copy of 64 bytes
//! (9 ns against 8, on a busy machine).
//!
//! Signals that are not ours go to whoever handled them before, and so end the process as they would without us. A
//! handler that the program installs later is found when it next registers memory or changes a queue pair, and then
//! stands behind ours. On other architectures than x86-64 nothing is guarded.

use std::sync::atomic::{AtomicU8, Ordering};

use urxe_proto::AccessError;

/// Copies `bytes` to the process's address `to`, the last byte last: programs poll the end of a
/// buffer to learn that all of it has arrived.
///
/// # Errors
/// [`AccessError::Fault`] if it is not there; some of the bytes may have been placed.
///
/// # Safety
/// Nobody but a program that expects it may own the memory.
pub(crate) unsafe fn place(to: u64, bytes: &[u8]) -> Result<(), AccessError> {
    let Some((last, body)) = bytes.split_last() else {
        return Ok(());
    };
    let to = to as *mut u8;
    // SAFETY: the caller's promise; `bytes` is ours, so the two do not overlap. Nothing here has to be dropped.
    unsafe {
        guarded(|| {
            std::ptr::copy_nonoverlapping(body.as_ptr(), to, body.len());
            AtomicU8::from_ptr(to.add(body.len())).store(*last, Ordering::Release);
        })
    }
}

/// Copies `pieces` to the process's address `to`, one behind the other. They are no message's end: see [`place`].
///
/// # Errors
/// [`AccessError::Fault`] if it is not there; some of the bytes may have been placed.
///
/// # Safety
/// Nobody but a program that expects it may own the memory.
pub(crate) unsafe fn place_pieces(to: u64, pieces: &[&[u8]]) -> Result<(), AccessError> {
    // SAFETY: the caller's promise; the pieces are ours, so that nothing overlaps. Nothing here has to be dropped.
    unsafe {
        guarded(|| {
            let mut to = to as *mut u8;
            for piece in pieces {
                std::ptr::copy_nonoverlapping(piece.as_ptr(), to, piece.len());
                to = to.add(piece.len());
            }
        })
    }
}

/// Copies from the process's address `from`.
///
/// # Errors
/// [`AccessError::Fault`] if it is not there.
///
/// # Safety
/// Nobody may be writing there who does not expect to be read.
pub(crate) unsafe fn take(from: u64, out: &mut [u8]) -> Result<(), AccessError> {
    let (from, len, out) = (from as *const u8, out.len(), out.as_mut_ptr());
    // SAFETY: the caller's promise; `out` is ours, so the two do not overlap. Nothing here has to be dropped.
    unsafe { guarded(|| std::ptr::copy_nonoverlapping(from, out, len)) }
}

/// Runs `access`, which may touch memory that is not there.
///
/// # Errors
/// [`AccessError::Fault`] if it was not; `access` was left where it was then.
///
/// # Safety
/// `access` must be of a kind that can be left anywhere: it takes no lock, and has nothing to drop.
#[inline]
pub(crate) unsafe fn guarded<F: FnMut()>(mut access: F) -> Result<(), AccessError> {
    /// The closure, as assembly can call it.
    unsafe extern "C" fn run<F: FnMut()>(access: *mut libc::c_void) {
        // SAFETY: a live `F`, given below.
        unsafe { (*access.cast::<F>())() }
    }
    let access = (&raw mut access).cast();
    // SAFETY: `run` takes what `access` is; the caller's promise for leaving it.
    match unsafe { machine::call(run::<F>, access) } {
        0 => Ok(()),
        _ => Err(AccessError::Fault),
    }
}

/// Sees to it that the signals come here first.
pub(crate) fn install() {
    machine::install();
}

#[cfg(target_arch = "x86_64")]
mod machine {
    use std::sync::atomic::{AtomicPtr, Ordering};
    use std::sync::{Mutex, PoisonError};

    use libc::{c_int, c_void, siginfo_t};

    // A guarded access leaves its stack pointer in a variable of the thread; 0 otherwise. That is no thread_local!: its
    // first use in a thread may allocate, which a signal handler must not. (`gottpoff` is the "initial exec" model of
    // thread-local storage, an address that is known once the library is loaded.)
    std::arch::global_asm!(
        ".pushsection .tbss.urxe_guard,\"awT\",@nobits",
        ".p2align 3",
        ".type urxe_guard_frame,@object",
        "urxe_guard_frame:",
        ".zero 8",
        ".size urxe_guard_frame, 8",
        ".popsection",
        // int urxe_guard_call(void (*run)(void *), void *argument)
        ".globl urxe_guard_call",
        ".hidden urxe_guard_call",
        ".type urxe_guard_call,@function",
        "urxe_guard_call:",
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
        "2:",
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
        // Where the handler goes on, with the stack pointer that was left.
        ".globl urxe_guard_failed",
        ".hidden urxe_guard_failed",
        "urxe_guard_failed:",
        "mov eax, 1",
        "jmp 2b",
        ".size urxe_guard_call, . - urxe_guard_call",
        // size_t urxe_guard_frame_now(void)
        ".globl urxe_guard_frame_now",
        ".hidden urxe_guard_frame_now",
        ".type urxe_guard_frame_now,@function",
        "urxe_guard_frame_now:",
        "mov rax, qword ptr [rip + urxe_guard_frame@gottpoff]",
        "mov rax, qword ptr fs:[rax]",
        "ret",
        ".size urxe_guard_frame_now, . - urxe_guard_frame_now",
    );

    unsafe extern "C" {
        fn urxe_guard_call(run: unsafe extern "C" fn(*mut c_void), argument: *mut c_void) -> c_int;
        safe fn urxe_guard_frame_now() -> i64;
        /// No function: only its address counts.
        fn urxe_guard_failed();
    }

    /// # Safety
    /// As `guarded`; `run` takes `argument`.
    #[inline]
    pub(super) unsafe fn call(
        run: unsafe extern "C" fn(*mut c_void),
        argument: *mut c_void,
    ) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { urxe_guard_call(run, argument) }
    }

    const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

    type Handler = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

    /// Our handlers, one for each time that the program put its own in front: that may call ours, which then must not
    /// call it again.
    const HANDLERS: [Handler; 4] = [handle::<0>, handle::<1>, handle::<2>, handle::<3>];

    /// Who handled each signal before each of ours.
    static BEFORE: [[AtomicPtr<libc::sigaction>; 2]; 4] =
        [const { [const { AtomicPtr::new(std::ptr::null_mut()) }; 2] }; 4];

    pub(super) fn install() {
        static INSTALLING: Mutex<()> = Mutex::new(());
        let _alone = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
        for (at, signal) in SIGNALS.into_iter().enumerate() {
            // SAFETY: plain data, which the call overwrites.
            let mut current: libc::sigaction = unsafe { std::mem::zeroed() };
            // SAFETY: asks only.
            let asked = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut current) };
            let is_ours = HANDLERS
                .iter()
                .any(|ours| *ours as usize == current.sa_sigaction);
            let free = BEFORE
                .iter()
                .position(|before| before[at].load(Ordering::Acquire).is_null());
            let Some(level) = free.filter(|_| asked == 0 && !is_ours) else {
                continue;
            };
            let ours = libc::sigaction {
                sa_sigaction: HANDLERS[level] as usize,
                sa_flags: libc::SA_SIGINFO
                    | libc::SA_ONSTACK
                    | (current.sa_flags & libc::SA_NODEFER),
                ..current
            };
            // It stays for the life of the process: the handler may run at any time.
            BEFORE[level][at].store(Box::into_raw(Box::new(current)), Ordering::Release);
            // SAFETY: the handler calls nothing that a signal handler must not, and passes on what is not ours.
            unsafe { libc::sigaction(signal, &raw const ours, std::ptr::null_mut()) };
        }
    }

    extern "C" fn handle<const LEVEL: usize>(
        signal: c_int,
        info: *mut siginfo_t,
        context: *mut c_void,
    ) {
        /// The direction flag of EFLAGS, which functions expect to be clear.
        const DIRECTION: i64 = 1 << 10;
        let frame = urxe_guard_frame_now();
        // SAFETY: the kernel gives both.
        let is_fault = unsafe { (*info).si_code } > 0;
        if frame == 0 || !is_fault {
            pass_on::<LEVEL>(signal, info, context);
            return;
        }
        // SAFETY: the context is the interrupted thread's; the frame is that of a guarded access that has not ended.
        unsafe {
            let registers = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
            registers[libc::REG_RSP as usize] = frame;
            registers[libc::REG_RIP as usize] = urxe_guard_failed as *const () as i64;
            registers[libc::REG_EFL as usize] &= !DIRECTION;
        }
    }

    fn pass_on<const LEVEL: usize>(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
        let at = usize::from(signal != SIGNALS[0]);
        // SAFETY: null, or what `install` left there for good.
        let before = unsafe { BEFORE[LEVEL][at].load(Ordering::Acquire).as_ref() };
        let handler = before.map_or(libc::SIG_DFL, |before| before.sa_sigaction);
        if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
            // The access happens again, and ends the process as it would have without us. A signal that somebody sent
            // does not come again by itself.
            // SAFETY: plain data; signal(2) and raise(3) may be called here.
            unsafe {
                libc::signal(signal, handler);
                if (*info).si_code <= 0 && handler == libc::SIG_DFL {
                    libc::raise(signal);
                }
            }
        } else if before.is_some_and(|before| before.sa_flags & libc::SA_SIGINFO != 0) {
            // SAFETY: the program installed a function of this kind.
            let handler: Handler = unsafe { std::mem::transmute(handler) };
            handler(signal, info, context);
        } else {
            // SAFETY: the program installed a function of this kind.
            let handler: extern "C" fn(c_int) = unsafe { std::mem::transmute(handler) };
            handler(signal);
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod machine {
    use libc::{c_int, c_void};

    /// # Safety
    /// As `guarded`; `run` takes `argument`.
    pub(super) unsafe fn call(
        run: unsafe extern "C" fn(*mut c_void),
        argument: *mut c_void,
    ) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { run(argument) };
        0
    }

    pub(super) fn install() {}
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    const LEN: usize = 1 << 16;

    /// Memory of which the second half is unmapped.
    fn half_gone() -> u64 {
        // SAFETY: a new mapping, of which half is unmapped again.
        unsafe {
            let start = libc::mmap(
                std::ptr::null_mut(),
                LEN,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(start, libc::MAP_FAILED);
            assert_eq!(libc::munmap(start.add(LEN / 2), LEN / 2), 0);
            start as u64
        }
    }

    #[test]
    fn what_is_there_is_copied_and_what_is_gone_is_a_fault() {
        install();
        let at = half_gone();
        let (data, mut out) = (vec![7; LEN], vec![0; LEN]);
        // SAFETY: memory of this test's own.
        unsafe {
            assert_eq!(place(at, &data[..LEN / 2]), Ok(()));
            assert_eq!(take(at, &mut out[..LEN / 2]), Ok(()));
            assert!(out[..LEN / 2] == data[..LEN / 2]);
            for len in [1, 7, 64, 1024, LEN / 2] {
                let near_end = at + (LEN / 2) as u64 - 1;
                assert_eq!(place(near_end, &data[..=len]), Err(AccessError::Fault));
                assert_eq!(take(near_end, &mut out[..=len]), Err(AccessError::Fault));
                assert_eq!(place(near_end, &data[..1]), Ok(()), "as good as before");
            }
        }
    }

    #[test]
    fn memory_that_may_not_be_written_is_a_fault() {
        install();
        // SAFETY: a constant is never written: that is the point.
        unsafe {
            let constant = b"constant".as_ptr() as u64;
            assert_eq!(place(constant, b"other"), Err(AccessError::Fault));
            let mut out = [0; 8];
            assert_eq!(take(constant, &mut out), Ok(()));
            assert_eq!(&out, b"constant");
        }
    }

    #[test]
    fn a_file_cut_short_is_a_fault() {
        install();
        let file = std::env::temp_dir().join(format!("urxe-guard-{}", std::process::id()));
        std::fs::write(&file, vec![1; LEN]).unwrap();
        let open = std::fs::File::options()
            .read(true)
            .write(true)
            .open(&file)
            .unwrap();
        std::fs::remove_file(&file).unwrap();
        // SAFETY: a new mapping of a file of this test's own.
        unsafe {
            use std::os::fd::AsRawFd;
            let start = libc::mmap(
                std::ptr::null_mut(),
                LEN,
                libc::PROT_READ,
                libc::MAP_SHARED,
                open.as_raw_fd(),
                0,
            );
            assert_ne!(start, libc::MAP_FAILED);
            let mut out = vec![0; LEN];
            assert_eq!(take(start as u64, &mut out), Ok(()));
            open.set_len(0).unwrap();
            assert_eq!(
                take(start as u64, &mut out),
                Err(AccessError::Fault),
                "SIGBUS"
            );
            libc::munmap(start, LEN);
        }
    }

    #[test]
    fn threads_do_not_disturb_each_other() {
        install();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let at = half_gone();
                    for round in 0..500 {
                        let mut out = [0; 4096];
                        let expected = if round % 2 == 0 {
                            Ok(())
                        } else {
                            Err(AccessError::Fault)
                        };
                        let from = at + (round % 2 * LEN / 2) as u64;
                        // SAFETY: memory of this test's own.
                        assert_eq!(unsafe { take(from, &mut out) }, expected);
                    }
                });
            }
        });
    }
}
