//! Control messages (cmsg(3)): written into and read from buffers that are never zeroed.

use std::mem::{MaybeUninit, size_of};
use std::ptr;

use libc::{c_int, c_uint, c_void, cmsghdr, msghdr};

/// Bytes for the control messages of one message. Sending needs UDP_SEGMENT and a type of service
/// (24 each on 64 bit). Receiving needs UDP_GRO and a type of service, and options that other code
/// sets on our socket must not push these out.
const CAPACITY_BYTES: usize = 128;

/// Room for control messages, aligned for `cmsghdr`.
#[repr(C, align(8))]
pub(crate) struct ControlBuffer {
    bytes: [MaybeUninit<u8>; CAPACITY_BYTES],
}

const _: () = assert!(align_of::<ControlBuffer>() >= align_of::<cmsghdr>());

impl ControlBuffer {
    pub(crate) const CAPACITY_BYTES: usize = CAPACITY_BYTES;

    pub(crate) const fn new() -> Self {
        Self {
            bytes: [MaybeUninit::uninit(); CAPACITY_BYTES],
        }
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut c_void {
        self.bytes.as_mut_ptr().cast()
    }
}

/// Writes control messages one after the other.
pub(crate) struct ControlWriter<'a> {
    buffer: &'a mut ControlBuffer,
    length: usize,
}

impl<'a> ControlWriter<'a> {
    pub(crate) fn new(buffer: &'a mut ControlBuffer) -> Self {
        Self { buffer, length: 0 }
    }

    /// Appends one control message.
    pub(crate) fn push<T: Copy>(&mut self, level: c_int, kind: c_int, value: T) {
        let value_bytes = size_of::<T>() as c_uint;
        // SAFETY: CMSG_SPACE and CMSG_LEN only compute.
        let (space, length) = unsafe {
            (
                libc::CMSG_SPACE(value_bytes) as usize,
                libc::CMSG_LEN(value_bytes),
            )
        };
        assert!(
            self.length + space <= CAPACITY_BYTES,
            "control messages larger than their buffer"
        );
        // SAFETY: the assertion keeps header and value inside the buffer; the buffer is aligned for
        // cmsghdr and CMSG_SPACE is a multiple of that alignment; the value is written unaligned.
        unsafe {
            let header = self
                .buffer
                .bytes
                .as_mut_ptr()
                .add(self.length)
                .cast::<cmsghdr>();
            // The padding that some C libraries have inside cmsghdr must be zero. That behind the
            // value need not, but valgrind cannot know.
            ptr::write_bytes(header.cast::<u8>(), 0, space);
            (*header).cmsg_level = level;
            (*header).cmsg_type = kind;
            (*header).cmsg_len = length as _;
            ptr::write_unaligned(libc::CMSG_DATA(header).cast::<T>(), value);
        }
        self.length += space;
    }

    /// Makes the message carry what was written.
    pub(crate) fn attach(self, message: &mut msghdr) {
        if self.length > 0 {
            message.msg_control = self.buffer.as_mut_ptr();
            message.msg_controllen = self.length as _;
        }
    }
}

/// One received control message.
pub(crate) struct ControlMessage {
    pub(crate) level: c_int,
    pub(crate) kind: c_int,
    value: *const u8,
    value_bytes: usize,
}

impl ControlMessage {
    /// The value as an integer, whether the kernel wrote one byte (IP_TOS) or an int (IPV6_TCLASS,
    /// UDP_GRO).
    pub(crate) fn integer(&self) -> Option<c_int> {
        // SAFETY: the kernel wrote `value_bytes` bytes at `value`; the int may be unaligned.
        unsafe {
            match self.value_bytes {
                1 => Some(c_int::from(*self.value)),
                n if n >= size_of::<c_int>() => {
                    Some(ptr::read_unaligned(self.value.cast::<c_int>()))
                }
                _ => None,
            }
        }
    }
}

/// Calls `each` for every control message of a received message.
///
/// # Safety
///
/// `message` must be as `recvmsg` left it: its control buffer valid, and written up to
/// `msg_controllen`.
pub(crate) unsafe fn for_each(message: &msghdr, mut each: impl FnMut(ControlMessage)) {
    // SAFETY: the caller's promise; the CMSG functions stay within msg_controllen.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while !header.is_null() {
            let value = libc::CMSG_DATA(header);
            let overhead = value.offset_from(header.cast::<u8>()) as usize;
            each(ControlMessage {
                level: (*header).cmsg_level,
                kind: (*header).cmsg_type,
                value,
                value_bytes: ((*header).cmsg_len as usize).saturating_sub(overhead),
            });
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut buffer = ControlBuffer::new();
        // SAFETY: all zeros is a valid msghdr.
        let mut message: msghdr = unsafe { std::mem::zeroed() };
        let mut writer = ControlWriter::new(&mut buffer);
        writer.push(libc::SOL_UDP, libc::UDP_SEGMENT, 1452_i32);
        writer.push(libc::IPPROTO_IP, libc::IP_TOS, 2_u8);
        writer.push(libc::IPPROTO_IP, libc::IP_TTL, 7_u16);
        writer.attach(&mut message);
        let mut seen = Vec::new();
        // SAFETY: the writer filled the message.
        unsafe { for_each(&message, |m| seen.push((m.level, m.kind, m.integer()))) };
        assert_eq!(
            seen,
            [
                (libc::SOL_UDP, libc::UDP_SEGMENT, Some(1452)),
                (libc::IPPROTO_IP, libc::IP_TOS, Some(2)),
                (libc::IPPROTO_IP, libc::IP_TTL, None)
            ]
        );
    }

    #[test]
    fn nothing_written_is_no_control_message() {
        let mut buffer = ControlBuffer::new();
        // SAFETY: all zeros is a valid msghdr.
        let mut message: msghdr = unsafe { std::mem::zeroed() };
        ControlWriter::new(&mut buffer).attach(&mut message);
        assert!(message.msg_control.is_null());
    }

    #[test]
    #[should_panic(expected = "larger than their buffer")]
    fn too_many_messages_do_not_overflow_the_buffer() {
        let mut buffer = ControlBuffer::new();
        let mut writer = ControlWriter::new(&mut buffer);
        for _ in 0..CAPACITY_BYTES {
            writer.push(libc::IPPROTO_IP, libc::IP_TOS, 0_i32);
        }
    }
}
