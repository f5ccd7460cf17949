//! Error numbers, and how each verb hands them to C.
//!
//! libibverbs has four ways to say that something failed, and the manual pages tell which verb uses
//! which. A function of ours returns `Result<_, Errno>`; its [`Convention`] makes the C value of
//! it.
use std::ffi::c_int;
use std::marker::PhantomData;

/// A Linux error number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Errno(pub(crate) c_int);

impl Errno {
    pub(crate) const NOENT: Self = Self(libc::ENOENT);
    pub(crate) const INVAL: Self = Self(libc::EINVAL);
    pub(crate) const BUSY: Self = Self(libc::EBUSY);
    pub(crate) const NOSYS: Self = Self(libc::ENOSYS);
    pub(crate) const NODATA: Self = Self(libc::ENODATA);
    pub(crate) const OPNOTSUPP: Self = Self(libc::EOPNOTSUPP);

    /// Makes this the calling thread's `errno`.
    pub(crate) fn set(self) {
        // SAFETY: the location of this thread's errno is always valid.
        unsafe { *libc::__errno_location() = self.0 };
    }

    /// The error number behind an I/O error.
    pub(crate) fn of(error: &std::io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

/// What a function of ours returns.
pub(crate) type Outcome<T> = Result<T, Errno>;

/// How a verb returns success and failure to C.
pub(crate) trait Convention {
    /// What success carries.
    type Value;
    /// What C sees.
    type Raw;
    /// The C value for `outcome`.
    fn raw(outcome: Outcome<Self::Value>) -> Self::Raw;
    /// The C value for an object's end; a failure where no verb that ends one returns so.
    fn done() -> Self::Raw {
        Self::raw(Err(Errno::INVAL))
    }
}

/// 0, or the error number. `errno` is set as well, which some programs print instead.
pub(crate) struct ErrnoCode;

impl Convention for ErrnoCode {
    type Value = ();
    type Raw = c_int;
    fn raw(outcome: Outcome<()>) -> c_int {
        match outcome {
            Ok(()) => 0,
            Err(errno) => {
                errno.set();
                errno.0
            }
        }
    }
    fn done() -> c_int {
        Self::raw(Ok(()))
    }
}

/// A value that is not negative, or -1 with `errno` set.
pub(crate) struct MinusOne;

impl Convention for MinusOne {
    type Value = c_int;
    type Raw = c_int;
    fn raw(outcome: Outcome<c_int>) -> c_int {
        outcome.unwrap_or_else(|errno| {
            errno.set();
            -1
        })
    }
    fn done() -> c_int {
        Self::raw(Ok(0))
    }
}

/// As [`MinusOne`], for a length.
pub(crate) struct Length;

impl Convention for Length {
    type Value = isize;
    type Raw = isize;
    fn raw(outcome: Outcome<isize>) -> isize {
        outcome.unwrap_or_else(|errno| {
            errno.set();
            -1
        })
    }
}

/// A pointer, or NULL with `errno` set.
pub(crate) struct Pointer<T>(PhantomData<T>);

impl<T> Convention for Pointer<T> {
    type Value = *mut T;
    type Raw = *mut T;
    fn raw(outcome: Outcome<*mut T>) -> *mut T {
        outcome.unwrap_or_else(|errno| {
            errno.set();
            std::ptr::null_mut()
        })
    }
}

/// A count, or the negated error number.
pub(crate) struct NegativeErrno;

impl Convention for NegativeErrno {
    type Value = isize;
    type Raw = isize;
    fn raw(outcome: Outcome<isize>) -> isize {
        outcome.unwrap_or_else(|errno| -(errno.0 as isize))
    }
}

/// Any plain value; failure is its default (0, nothing).
pub(crate) struct Plain<T>(PhantomData<T>);

impl<T: Default> Convention for Plain<T> {
    type Value = T;
    type Raw = T;
    fn raw(outcome: Outcome<T>) -> T {
        outcome.unwrap_or_default()
    }
    fn done() -> T {
        T::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errno() -> c_int {
        std::io::Error::last_os_error().raw_os_error().unwrap()
    }

    #[test]
    fn each_convention_says_failure_its_own_way() {
        assert_eq!(ErrnoCode::raw(Err(Errno::BUSY)), libc::EBUSY);
        assert_eq!(errno(), libc::EBUSY);
        assert_eq!(MinusOne::raw(Err(Errno::INVAL)), -1);
        assert_eq!(errno(), libc::EINVAL);
        assert!(Pointer::<u8>::raw(Err(Errno::BUSY)).is_null());
        assert_eq!(errno(), libc::EBUSY);
        assert_eq!(
            NegativeErrno::raw(Err(Errno::OPNOTSUPP)),
            -(libc::EOPNOTSUPP as isize)
        );
        assert_eq!(Plain::<u64>::raw(Err(Errno::INVAL)), 0);
    }

    #[test]
    fn success_is_passed_on() {
        assert_eq!(ErrnoCode::raw(Ok(())), 0);
        assert_eq!(MinusOne::raw(Ok(7)), 7);
        assert_eq!(NegativeErrno::raw(Ok(3)), 3);
        let mut byte = 0u8;
        assert_eq!(Pointer::raw(Ok(&raw mut byte)), &raw mut byte);
    }
}
