//! Management datagrams: the common header, and the message in it.

use crate::bytes::{self, MAD_LEN, Raw};
use crate::error::MadError;
use crate::message;
use crate::message::*;

/// Base version 1, class 7 (communication management), class version 2, method Send (IBTA vol 1,
/// 13.4.3 and 12.6.1).
const HEAD: [u8; 4] = [0x01, 0x07, 0x02, 0x03];
const TRANSACTION: usize = 8;
const ATTRIBUTE: usize = 16;

/// Which message it is: the attribute IDs (IBTA vol 1, table 106).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
#[expect(missing_docs, reason = "the specification's own names")]
pub enum Attribute {
    Req = 0x10,
    Mra = 0x11,
    Rej = 0x12,
    Rep = 0x13,
    Rtu = 0x14,
    Dreq = 0x15,
    Drep = 0x16,
    SidrReq = 0x17,
    SidrRep = 0x18,
    Lap = 0x19,
    Apr = 0x1a,
}

/// A management datagram of the connection manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mad {
    /// Pairs requests and answers.
    pub transaction: u64,
    /// The message.
    pub message: Message,
}

macro_rules! messages {
    ($($name:ident)*) => {
        /// A message of the connection manager.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[expect(missing_docs, reason = "each is documented by its type")]
        pub enum Message {
            $($name($name),)*
        }

        $(impl From<$name> for Message {
            fn from(message: $name) -> Self {
                Self::$name(message)
            }
        })*

        impl Message {
            /// Which one it is.
            #[must_use]
            pub const fn attribute(&self) -> Attribute {
                match self {
                    $(Self::$name(_) => Attribute::$name,)*
                }
            }

            fn emit(&self, raw: &mut Raw) {
                match self {
                    $(Self::$name(message) => message.emit(raw),)*
                }
            }

            fn parse(attribute: u16, raw: &Raw) -> Result<Self, MadError> {
                $(
                    if attribute == Attribute::$name as u16 {
                        return Ok(Self::$name(message::$name::parse(raw)));
                    }
                )*
                Err(MadError::Attribute(attribute))
            }
        }
    };
}

messages! { Req Mra Rej Rep Rtu Dreq Drep SidrReq SidrRep Lap Apr }

impl Mad {
    /// Reads a management datagram.
    ///
    /// # Errors
    /// Says why it is not understood. Nothing in `raw` makes this panic.
    pub fn parse(raw: &[u8]) -> Result<Self, MadError> {
        let raw: &Raw = raw.try_into().map_err(|_| MadError::Length(raw.len()))?;
        let head = bytes::array(raw, 0);
        if head != HEAD {
            return Err(MadError::NotCm(head));
        }
        Ok(Self {
            transaction: bytes::get(raw, TRANSACTION, 8),
            message: Message::parse(bytes::get16(raw, ATTRIBUTE), raw)?,
        })
    }

    /// The bytes on the wire.
    #[must_use]
    pub fn emit(&self) -> [u8; MAD_LEN] {
        let mut raw = [0; MAD_LEN];
        bytes::put_array(&mut raw, 0, &HEAD);
        bytes::put(&mut raw, TRANSACTION, 8, self.transaction);
        bytes::put(&mut raw, ATTRIBUTE, 2, self.message.attribute() as u64);
        self.message.emit(&mut raw);
        raw
    }
}

impl Message {
    /// What the receiver calls the exchange that the message belongs to; 0 of one that begins an
    /// exchange.
    #[must_use]
    pub const fn answered_id(&self) -> u32 {
        match self {
            Self::Req(_) | Self::SidrReq(_) => 0,
            Self::Mra(m) => m.remote_comm_id,
            Self::Rej(m) => m.remote_comm_id,
            Self::Rep(m) => m.remote_comm_id,
            Self::Rtu(m) => m.remote_comm_id,
            Self::Dreq(m) => m.remote_comm_id,
            Self::Drep(m) => m.remote_comm_id,
            Self::SidrRep(m) => m.request_id,
            Self::Lap(m) => m.remote_comm_id,
            Self::Apr(m) => m.remote_comm_id,
        }
    }
}
