//! The only clock of the NIC.

use std::io;

use urxe_proto::Instant;
use urxe_udp::{Event, Waiter};

/// Now: nanoseconds of `CLOCK_MONOTONIC`; in tests perhaps those of a `staged::Clock`.
pub(crate) fn now() -> Instant {
    #[cfg(test)]
    if let Some(at) = staged::now() {
        return at;
    }
    Instant::from_nanos(monotonic_ns())
}

/// Waits at most so long for what `waiter` watches. While a `staged::Clock` is there nothing really
/// waits.
pub(crate) fn wait(waiter: &mut Waiter, timeout_ns: Option<u64>) -> io::Result<&[Event]> {
    #[cfg(test)]
    if let Some(until) = staged::wait_until(timeout_ns) {
        let ready = waiter.wait(Some(0))?;
        if ready.is_empty() {
            staged::pass_until(until);
        }
        return Ok(ready);
    }
    waiter.wait(timeout_ns)
}

/// `CLOCK_MONOTONIC`, nanoseconds, as programs read it.
pub(crate) fn monotonic_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the time lives until the call returns; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// Time that a test alone makes pass, for the thread that runs the test: a busy machine changes
/// nothing of it.
#[cfg(test)]
pub(crate) mod staged {
    use std::cell::{Cell, RefCell};
    use std::marker::PhantomData;

    use urxe_proto::Instant;

    /// Each look at the clock takes so long, as a round does or more: what goes on until a time has
    /// come does not go on for ever.
    const LOOK_NS: u64 = 100;

    /// A wait for ever lasts so long, as if a signal had come: the code that waits looks around,
    /// and waits again.
    const FOR_EVER_NS: u64 = 1_000_000;

    type Meanwhile = Box<dyn FnMut(Instant)>;

    thread_local! {
        static NOW: Cell<Option<Instant>> = const { Cell::new(None) };
        static MEANWHILE: RefCell<Option<Meanwhile>> = const { RefCell::new(None) };
    }

    /// While it lives, the calling thread's time stands still but for what [`pass`], looks and
    /// waits take.
    pub(crate) struct Clock(PhantomData<*const ()>);

    impl Clock {
        pub(crate) fn new() -> Self {
            assert_eq!(NOW.get(), None, "a thread has one clock");
            NOW.set(Some(Instant::from_nanos(super::monotonic_ns())));
            Self(PhantomData)
        }

        /// What others do in each wait from now on, given when the wait ends if nothing comes: they
        /// may let time pass until then.
        pub(crate) fn meanwhile(&self, others: impl FnMut(Instant) + 'static) {
            MEANWHILE.set(Some(Box::new(others)));
        }
    }

    impl Drop for Clock {
        fn drop(&mut self) {
            NOW.set(None);
            MEANWHILE.set(None);
        }
    }

    /// Lets so much time pass.
    pub(crate) fn pass(ns: u64) {
        NOW.set(NOW.get().map(|now| now.after(ns)));
    }

    pub(super) fn now() -> Option<Instant> {
        let now = NOW.get()?.after(LOOK_NS);
        NOW.set(Some(now));
        Some(now)
    }

    /// A wait begins: when it ends, after what others do in it.
    pub(super) fn wait_until(timeout_ns: Option<u64>) -> Option<Instant> {
        let until = NOW.get()?.after(timeout_ns.unwrap_or(FOR_EVER_NS));
        MEANWHILE.with_borrow_mut(|others| {
            if let Some(others) = others {
                others(until);
            }
        });
        Some(until)
    }

    pub(super) fn pass_until(until: Instant) {
        NOW.set(NOW.get().map(|now| now.max(until)));
    }
}
