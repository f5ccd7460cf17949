//! Why a verb failed, and the errno that stands for it in the C interface.

use std::fmt;
use std::io;

use urxe_proto::{AccessError, ModifyError, PostError};

/// Why a verb failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// An argument is not valid; says which and what is allowed.
    Invalid(String),
    /// The object has been destroyed, or does not belong to this device.
    Gone(&'static str),
    /// The object is used by another one.
    Busy(&'static str),
    /// Packets cannot get to an address; says why, and what to do.
    Unreachable(String),
    /// A limit of the device is reached.
    Exhausted(&'static str),
    /// The device does not do this.
    Unsupported(&'static str),
    /// Memory cannot be accessed as asked.
    Access(AccessError),
    /// A work request was not taken.
    Post(PostError),
    /// Attributes were not taken.
    Modify(ModifyError),
    /// The operating system refused.
    Io(io::Error),
}

impl Error {
    /// The errno that a verbs program gets.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::Invalid(_) | Self::Gone(_) | Self::Modify(_) => libc::EINVAL,
            Self::Unreachable(_) => libc::EHOSTUNREACH,
            Self::Busy(_) => libc::EBUSY,
            Self::Exhausted(_) | Self::Post(PostError::Full) => libc::ENOMEM,
            Self::Unsupported(_) => libc::EOPNOTSUPP,
            Self::Post(_) => libc::EINVAL,
            Self::Access(AccessError::UnknownKey) => libc::ENOENT,
            Self::Access(AccessError::WrongPd | AccessError::Denied) => libc::EPERM,
            Self::Access(AccessError::OutOfBounds | AccessError::Fault) => libc::EFAULT,
            Self::Access(AccessError::Misaligned | AccessError::WindowState) => libc::EINVAL,
            Self::Io(error) => error.raw_os_error().unwrap_or(libc::EIO),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(why) | Self::Unreachable(why) => f.write_str(why),
            Self::Gone(what) => write!(f, "{what} does not exist (any more) on this device"),
            Self::Busy(what) => write!(f, "{what} is still in use"),
            Self::Exhausted(what) => write!(f, "the device has no {what} left"),
            Self::Unsupported(what) => write!(f, "the device does not support {what}"),
            Self::Access(why) => write!(f, "memory cannot be accessed: {why:?}"),
            Self::Post(why) => write!(f, "work request refused: {why:?}"),
            Self::Modify(why) => write!(f, "modify refused: {why}"),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<AccessError> for Error {
    fn from(error: AccessError) -> Self {
        Self::Access(error)
    }
}

impl From<PostError> for Error {
    fn from(error: PostError) -> Self {
        Self::Post(error)
    }
}

impl From<ModifyError> for Error {
    fn from(error: ModifyError) -> Self {
        Self::Modify(error)
    }
}
