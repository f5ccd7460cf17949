//! Calls of the C interface that block. A thread may be cancelled in them (pthread_cancel(3)), and
//! a signal handler may jump out of them: neither may leave frames of Rust behind, with locks and
//! destructors. So a call goes in steps ([`BlockingCall`]), and between two of them the thread
//! waits in ppoll(2), a cancellation point, in the frame of [`call`]. That frame is assembly, which
//! a debugger and libc's unwinder can read, and holds nothing. Within a step the thread cannot be
//! cancelled.
//!
//! What a call holds between its steps belongs to the thread, and is dropped when that ends, or
//! makes another call.
//!
//! Signals end the wait or not, as they would end a read(2) or not: see [`crate::signals`].
use std::arch::naked_asm;
use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::RawFd;

use libc::{pollfd, sigset_t, timespec};
use urxe_device::{BlockingCall, Step, Waiting, epoch};

use crate::errno::{Convention, Errno, Length, Outcome};
use crate::next::Next;
use crate::signals;

/// The most that a call has.
const ARGUMENTS: usize = 3;

/// What the frame of a blocking call holds: plain memory, that the steps write and ppoll(2) reads.
#[repr(C)]
pub(crate) struct Frame {
    /// The program's, as they came.
    pub(crate) arguments: [usize; ARGUMENTS],
    /// What the call returns in the end.
    answer: isize,
    polled: [pollfd; 2],
    count: libc::nfds_t,
    /// Null, or `limit`.
    timeout: *const timespec,
    /// Null, or `held`.
    mask: *const sigset_t,
    limit: timespec,
    held: sigset_t,
    /// Whether the thread could be cancelled before.
    cancel_state: c_int,
    /// What ppoll(2) returned.
    ready: c_int,
    /// The first step, should the call have to begin anew.
    begin: usize,
}

/// Bytes on the stack for it: a multiple of 16, and 8 more for the address that a call leaves
/// there.
const ROOM: usize = size_of::<Frame>().next_multiple_of(16) + 8;

/// Begins a call: whether it is over already.
pub(crate) type Begin = unsafe extern "C" fn(&mut Frame) -> bool;

unsafe extern "C" {
    fn ppoll(
        fds: *mut pollfd,
        count: libc::nfds_t,
        limit: *const timespec,
        mask: *const sigset_t,
    ) -> c_int;
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
    fn pthread_testcancel();
}

/// `PTHREAD_CANCEL_DISABLE` of <pthread.h>.
const DISABLE: c_int = 1;

/// The call that begins with the function in r11, with the program's arguments, of which it has at
/// most three.
///
/// # Safety
/// To be jumped to from the first instruction of a function of the C interface.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn call() {
    naked_asm!(
        ".cfi_startproc",
        "push rbx",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset rbx, 0",
        "sub rsp, {room} - 8",
        ".cfi_adjust_cfa_offset {room} - 8",
        "mov rbx, r11",
        "mov [rsp + {begin}], rbx",
        "mov [rsp + {arguments}], rdi",
        "mov [rsp + {arguments} + 8], rsi",
        "mov [rsp + {arguments} + 16], rdx",
        "call {testcancel}",
        "mov edi, {disable}",
        "lea rsi, [rsp + {cancel_state}]",
        "call {setcancelstate}",
        "mov rdi, rsp",
        "call rbx",
        "2:",
        "mov ebx, eax",
        "mov edi, [rsp + {cancel_state}]",
        "xor esi, esi",
        "call {setcancelstate}",
        "test bl, bl",
        "jnz 3f",
        "lea rdi, [rsp + {polled}]",
        "mov rsi, [rsp + {count}]",
        "mov rdx, [rsp + {timeout}]",
        "mov rcx, [rsp + {mask}]",
        "call {ppoll}",
        "mov [rsp + {ready}], eax",
        "mov edi, {disable}",
        "xor esi, esi",
        "call {setcancelstate}",
        "mov rdi, rsp",
        "call {resume}",
        "jmp 2b",
        "3:",
        "mov rax, [rsp + {answer}]",
        "add rsp, {room} - 8",
        ".cfi_adjust_cfa_offset -({room} - 8)",
        "pop rbx",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_restore rbx",
        "ret",
        ".cfi_endproc",
        room = const ROOM,
        begin = const offset_of!(Frame, begin),
        arguments = const offset_of!(Frame, arguments),
        answer = const offset_of!(Frame, answer),
        polled = const offset_of!(Frame, polled),
        count = const offset_of!(Frame, count),
        timeout = const offset_of!(Frame, timeout),
        mask = const offset_of!(Frame, mask),
        cancel_state = const offset_of!(Frame, cancel_state),
        ready = const offset_of!(Frame, ready),
        disable = const DISABLE,
        testcancel = sym pthread_testcancel,
        setcancelstate = sym pthread_setcancelstate,
        ppoll = sym ppoll,
        resume = sym resume,
    )
}

/// The same for 64-bit ARM: the first step is in x16.
///
/// # Safety
/// As above.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn call() {
    naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-32]!",
        ".cfi_def_cfa_offset 32",
        ".cfi_offset x29, -32",
        ".cfi_offset x30, -24",
        "str x19, [sp, #16]",
        ".cfi_offset x19, -16",
        "mov x29, sp",
        ".cfi_def_cfa x29, 32",
        "sub sp, sp, #{room}",
        "mov x19, x16",
        "str x19, [sp, #{begin}]",
        "stp x0, x1, [sp, #{arguments}]",
        "str x2, [sp, #{arguments} + 16]",
        "bl {testcancel}",
        "mov w0, #{disable}",
        "add x1, sp, #{cancel_state}",
        "bl {setcancelstate}",
        "mov x0, sp",
        "blr x19",
        "2:",
        "mov w19, w0",
        "ldr w0, [sp, #{cancel_state}]",
        "mov x1, xzr",
        "bl {setcancelstate}",
        "tst w19, #0xff",
        "b.ne 3f",
        "add x0, sp, #{polled}",
        "ldr x1, [sp, #{count}]",
        "ldr x2, [sp, #{timeout}]",
        "ldr x3, [sp, #{mask}]",
        "bl {ppoll}",
        "str w0, [sp, #{ready}]",
        "mov w0, #{disable}",
        "mov x1, xzr",
        "bl {setcancelstate}",
        "mov x0, sp",
        "bl {resume}",
        "b 2b",
        "3:",
        "ldr x0, [sp, #{answer}]",
        "mov sp, x29",
        ".cfi_def_cfa sp, 32",
        "ldr x19, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        ".cfi_def_cfa_offset 0",
        "ret",
        ".cfi_endproc",
        room = const ROOM - 8,
        begin = const offset_of!(Frame, begin),
        arguments = const offset_of!(Frame, arguments),
        answer = const offset_of!(Frame, answer),
        polled = const offset_of!(Frame, polled),
        count = const offset_of!(Frame, count),
        timeout = const offset_of!(Frame, timeout),
        mask = const offset_of!(Frame, mask),
        cancel_state = const offset_of!(Frame, cancel_state),
        ready = const offset_of!(Frame, ready),
        disable = const DISABLE,
        testcancel = sym pthread_testcancel,
        setcancelstate = sym pthread_setcancelstate,
        ppoll = sym ppoll,
        resume = sym resume,
    )
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("a blocking call needs a frame in the assembly of this processor");

/// A function as a route names it.
pub(crate) type Function = *const c_void;

/// What a route says when there is none: -1 and `ENOSYS`.
pub(crate) extern "C" fn missing() -> isize {
    Length::raw(Err(Errno::NOSYS))
}

/// The next library's function, for a route.
pub(crate) fn next(next: &Next) -> Function {
    match next.address() {
        Some(address) => address,
        None => missing as extern "C" fn() -> isize as Function,
    }
}

/// A call under way.
trait Call {
    /// Its outcome, or what to wait for.
    fn go_on(&mut self, is_ready: bool) -> Result<Outcome<isize>, Waiting>;
}

/// A call of the device's, and what the program is given of its answer; `None` if the call is to go
/// on.
struct Answered<C, F> {
    call: C,
    answer: F,
}

impl<C: BlockingCall, F: FnMut(C::Answer) -> Option<Outcome<isize>>> Call for Answered<C, F> {
    fn go_on(&mut self, mut is_ready: bool) -> Result<Outcome<isize>, Waiting> {
        loop {
            match self.call.step(is_ready) {
                Step::Wait(waiting) => return Err(waiting),
                Step::Done(Err(error)) => return Ok(Err(Errno::of(&error))),
                Step::Done(Ok(answer)) => {
                    if let Some(outcome) = (self.answer)(answer) {
                        return Ok(outcome);
                    }
                }
            }
            is_ready = false;
        }
    }
}

/// Words for a call and what makes its answer.
const CALL_WORDS: usize = 24;

/// A call that waits. In place, and not in memory of malloc: a program may wait in one thread and
/// fork in a signal handler there, which must not have interrupted malloc.
struct Kept {
    /// The address of its frame.
    of: usize,
    /// The process whose call it is.
    epoch: u32,
    call: [MaybeUninit<usize>; CALL_WORDS],
    go_on: unsafe fn(*mut c_void, bool) -> Result<Outcome<isize>, Waiting>,
    drop: unsafe fn(*mut c_void),
}

impl Kept {
    fn new<C: Call + 'static>(of: usize, epoch: u32, call: C) -> Self {
        const {
            assert!(
                size_of::<C>() <= size_of::<[usize; CALL_WORDS]>()
                    && align_of::<C>() <= align_of::<usize>()
            )
        };
        let mut kept = Self {
            of,
            epoch,
            call: [const { MaybeUninit::uninit() }; CALL_WORDS],
            // SAFETY: called with the call below.
            go_on: |call, is_ready| unsafe { (*call.cast::<C>()).go_on(is_ready) },
            // SAFETY: as above, once.
            drop: |call| unsafe { call.cast::<C>().drop_in_place() },
        };
        // SAFETY: there is room for it.
        unsafe { kept.call.as_mut_ptr().cast::<C>().write(call) };
        kept
    }

    fn go_on(&mut self, is_ready: bool) -> Result<Outcome<isize>, Waiting> {
        // SAFETY: the call that the function is for.
        unsafe { (self.go_on)(self.call.as_mut_ptr().cast(), is_ready) }
    }

    /// Whether it was begun before a fork, in the parent: what it holds is not to be touched.
    fn is_inherited(&self) -> bool {
        self.epoch != epoch()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if !self.is_inherited() {
            // SAFETY: the call that the function is for, dropped here alone.
            unsafe { (self.drop)(self.call.as_mut_ptr().cast()) };
        }
    }
}

thread_local! {
    /// The thread's call under way. One that was left is still here when the next begins.
    static UNDER_WAY: RefCell<Option<Kept>> = const { RefCell::new(None) };
}

/// Begins a call of the device's: whether it is over.
pub(crate) fn begin<C, F>(frame: &mut Frame, call: C, answer: F) -> bool
where
    C: BlockingCall + 'static,
    F: FnMut(C::Answer) -> Option<Outcome<isize>> + 'static,
{
    // A call that was left holds on to what this one may want.
    let left = UNDER_WAY.try_with(RefCell::take);
    drop(left);
    let (epoch, mut call) = (epoch(), Answered { call, answer });
    match call.go_on(false) {
        Ok(outcome) => frame.finish(outcome),
        Err(waiting) => frame.wait(waiting, Kept::new(own(frame), epoch, call)),
    }
}

/// Goes on after ppoll(2): whether the call is over.
unsafe extern "C" fn resume(frame: &mut Frame) -> bool {
    let errno = Errno::of(&std::io::Error::last_os_error());
    let own = own(frame);
    let taken = UNDER_WAY.try_with(RefCell::take).ok().flatten();
    let Some(mut kept) = taken.filter(|kept| kept.of == own && !kept.is_inherited()) else {
        // A signal handler made a call of its own, or forked.
        return frame.begin_anew();
    };
    let errno = if frame.ready >= 0 {
        (frame.has_signal() && signals::has_turned(&frame.held)).then_some(Errno(libc::EINTR))
    } else if errno == Errno(libc::EINTR) && signals::restarts(frame.has_mask()) {
        None
    } else {
        Some(errno)
    };
    if let Some(errno) = errno {
        drop(kept);
        return frame.finish(Err(errno));
    }
    let is_ready = frame.ready > 0 && frame.polled[0].revents != 0;
    match kept.go_on(is_ready) {
        Ok(outcome) => frame.finish(outcome),
        Err(waiting) => frame.wait(waiting, kept),
    }
}

fn own(frame: &Frame) -> usize {
    std::ptr::from_ref(frame).addr()
}

impl Frame {
    /// The call is over.
    pub(crate) fn finish(&mut self, outcome: Outcome<isize>) -> bool {
        self.answer = Length::raw(outcome);
        true
    }

    fn has_mask(&self) -> bool {
        !self.mask.is_null()
    }

    /// Whether a signal that was held back was pending.
    fn has_signal(&self) -> bool {
        self.has_mask() && self.polled[1].revents != 0
    }

    fn begin_anew(&mut self) -> bool {
        // SAFETY: `call` left the function there.
        let begin: Begin = unsafe { std::mem::transmute(self.begin) };
        // SAFETY: the arguments are as they were.
        unsafe { begin(self) }
    }

    /// The call waits, and goes on later.
    fn wait(&mut self, waiting: Waiting, call: Kept) -> bool {
        if call.is_inherited() {
            // A signal handler forked, and this is the child: what it would wait for is the
            // parent's.
            return self.begin_anew();
        }
        let mut call = Some(call);
        let kept = UNDER_WAY.try_with(|place| *place.borrow_mut() = call.take());
        if let (Err(_), Some(call)) = (kept, call) {
            return self.finish_now(call);
        }
        let polled = |fd: RawFd| pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        self.polled[0] = polled(waiting.fd);
        self.timeout = match waiting.timeout_ns {
            Some(ns) => {
                self.limit = urxe_device::timespec(ns);
                &raw const self.limit
            }
            None => std::ptr::null(),
        };
        (self.count, self.mask) = match signals::held(&mut self.held) {
            Some(pending) => {
                self.polled[1] = polled(pending);
                (2, &raw const self.held)
            }
            None => (1, std::ptr::null()),
        };
        false
    }

    /// In a thread that ends, which has no place to keep the call: it does not come back from here
    /// before the call is over.
    #[cold]
    fn finish_now(&mut self, mut kept: Kept) -> bool {
        let mut is_ready = false;
        loop {
            let waiting = match kept.go_on(is_ready) {
                Ok(outcome) => return self.finish(outcome),
                Err(waiting) => waiting,
            };
            is_ready = urxe_device::poll(waiting).unwrap_or(false);
        }
    }
}
