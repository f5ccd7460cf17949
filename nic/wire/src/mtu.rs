//! Path MTUs: how much data a packet carries.

/// A path MTU: the most payload of one packet, without headers (`enum ibv_mtu`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
#[expect(missing_docs, reason = "the number is the MTU in bytes")]
pub enum Mtu {
    B256 = 1,
    B512 = 2,
    B1024 = 3,
    B2048 = 4,
    B4096 = 5,
}

/// Bytes of a link's MTU that Linux (`iboe_get_mtu`) sets aside for headers: IPv6 40, UDP 8, BTH
/// 12, XRC 4, AtomicETH 28 and ICRC 4. Both ends of a connection must come to the same number, so
/// we do as Linux does.
const LINK_OVERHEAD_BYTES: u32 = 40 + 8 + 12 + 4 + 28 + 4;

impl Mtu {
    /// Every MTU, smallest first.
    pub const ALL: [Self; 5] = [
        Self::B256,
        Self::B512,
        Self::B1024,
        Self::B2048,
        Self::B4096,
    ];

    /// The payload it allows, bytes.
    #[inline]
    pub const fn bytes(self) -> usize {
        128 << self as usize
    }

    /// The code of `enum ibv_mtu` and of the CM's messages, 1 to 5.
    #[inline]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The MTU with this code, 1 to 5.
    #[inline]
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            1..=5 => Some(Self::ALL[code as usize - 1]),
            _ => None,
        }
    }

    /// The MTU of exactly this many bytes.
    pub const fn from_bytes(bytes: usize) -> Option<Self> {
        Some(match bytes {
            256 => Self::B256,
            512 => Self::B512,
            1024 => Self::B1024,
            2048 => Self::B2048,
            4096 => Self::B4096,
            _ => return None,
        })
    }

    /// The largest MTU whose packets fit a link with an MTU of `link_mtu_bytes` (what `ip link`
    /// shows: 1500 for plain Ethernet). `None` if not even 256 bytes do.
    pub fn for_link(link_mtu_bytes: u32) -> Option<Self> {
        let room = link_mtu_bytes.checked_sub(LINK_OVERHEAD_BYTES)? as usize;
        Self::ALL.into_iter().rev().find(|mtu| mtu.bytes() <= room)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_bytes_agree() {
        for (mtu, bytes) in Mtu::ALL.into_iter().zip([256, 512, 1024, 2048, 4096]) {
            assert_eq!(mtu.bytes(), bytes);
            assert_eq!(Mtu::from_bytes(bytes), Some(mtu));
            assert_eq!(Mtu::from_code(mtu.code()), Some(mtu));
        }
        assert_eq!(Mtu::from_code(0), None);
        assert_eq!(Mtu::from_code(6), None);
        assert_eq!(Mtu::from_bytes(1500), None);
    }

    #[test]
    fn link_mtu_leaves_room_for_headers() {
        assert_eq!(Mtu::for_link(1500), Some(Mtu::B1024));
        assert_eq!(Mtu::for_link(4191), Some(Mtu::B2048));
        assert_eq!(Mtu::for_link(4192), Some(Mtu::B4096));
        assert_eq!(Mtu::for_link(65536), Some(Mtu::B4096));
        assert_eq!(Mtu::for_link(300), None);
        assert_eq!(Mtu::for_link(0), None);
    }
}
