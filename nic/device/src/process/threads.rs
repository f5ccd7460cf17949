//! The device's threads among those of the program: how soon they run.

pub use urxe_udp::with_signals_blocked;

/// While it lives, the thread that made it cannot be cancelled (pthread_cancel(3)): it may hold
/// locks, which would stay locked. What wants to cancel it meanwhile does so at the next
/// cancellation point after. For what may write a file, or wait; the engine's own system calls are
/// no cancellation points.
#[derive(Debug)]
pub struct Uncancelled(libc::c_int);

unsafe extern "C" {
    safe fn pthread_setcancelstate(state: libc::c_int, before: &mut libc::c_int) -> libc::c_int;
}

impl Uncancelled {
    /// Makes it so.
    #[must_use]
    pub fn new() -> Self {
        /// `PTHREAD_CANCEL_DISABLE` of <pthread.h>.
        const DISABLE: libc::c_int = 1;
        let mut before = 0;
        pthread_setcancelstate(DISABLE, &mut before);
        Self(before)
    }
}

impl Default for Uncancelled {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        let mut ours = 0;
        pthread_setcancelstate(self.0, &mut ours);
    }
}

/// For the background thread: it works for a few microseconds at a time, for a peer that waits, and
/// has to do so beside a program that may spin on the same processor: in perftest's `ib_write_lat`
/// the target reads its memory until the data is there. Where the process may (`CAP_SYS_NICE` or
/// `RLIMIT_NICE`), the thread takes precedence; elsewhere it asks for short time slices, which come
/// earlier (Linux 6.12, and harmless before: the scheduler ignores the field).
pub(crate) fn ask_for_prompt_scheduling() {
    #[repr(C)]
    struct SchedAttr {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime_ns: u64,
        deadline_ns: u64,
        period_ns: u64,
    }
    /// Least time slice that the kernel grants (`kernel/sched/syscalls.c`).
    const SLICE_NS: u64 = 100_000;
    /// The highest precedence among ordinary threads.
    const NICE: i32 = -20;
    for nice in [NICE, 0] {
        let attr = SchedAttr {
            size: u32::try_from(size_of::<SchedAttr>()).unwrap_or(0),
            policy: 0,
            flags: 0,
            nice,
            priority: 0,
            runtime_ns: SLICE_NS,
            deadline_ns: 0,
            period_ns: 0,
        };
        // SAFETY: the structure is the kernel's `sched_attr`, version 0 (48 bytes,
        // linux/sched/types.h), and lives until the call returns. 0 is the calling thread.
        if unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) } == 0 {
            return;
        }
    }
}
