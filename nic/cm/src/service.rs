//! Service IDs of the RDMA IP CM service: a port of a port space (IBTA annex A11.2).

/// A port space: the ports of each are counted for themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
pub enum PortSpace {
    /// IP over InfiniBand: datagrams with the Q_Key of an IPoIB group.
    Ipoib = 0x0002,
    /// Connections, like TCP.
    Tcp = 0x0106,
    /// Datagrams, like UDP.
    Udp = 0x0111,
    /// Any transport, by native service IDs.
    Ib = 0x013f,
}

impl PortSpace {
    /// The port space with this number.
    #[must_use]
    pub const fn from_number(number: u16) -> Option<Self> {
        match number {
            0x0002 => Some(Self::Ipoib),
            0x0106 => Some(Self::Tcp),
            0x0111 => Some(Self::Udp),
            0x013f => Some(Self::Ib),
            _ => None,
        }
    }
}

/// A service ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceId(pub u64);

impl ServiceId {
    /// The service ID of a port.
    #[must_use]
    pub const fn of(space: PortSpace, port: u16) -> Self {
        Self((space as u64) << 16 | port as u64)
    }

    /// The port space and port it stands for; `None` for a service ID of any other kind.
    #[must_use]
    pub const fn port(self) -> Option<(PortSpace, u16)> {
        if self.0 >> 32 != 0 {
            return None;
        }
        match PortSpace::from_number((self.0 >> 16) as u16) {
            Some(space) => Some((space, self.0 as u16)),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_survive_the_trip_and_others_are_none() {
        for space in [
            PortSpace::Ipoib,
            PortSpace::Tcp,
            PortSpace::Udp,
            PortSpace::Ib,
        ] {
            assert_eq!(ServiceId::of(space, 7174).port(), Some((space, 7174)));
        }
        assert_eq!(ServiceId::of(PortSpace::Tcp, 7174), ServiceId(0x0106_1c06));
        assert_eq!(ServiceId(0x1_0106_1c06).port(), None);
        assert_eq!(ServiceId(0x0107_1c06).port(), None);
    }
}
