//! Event files of communication management, and what tests ask of them.

use std::net::SocketAddr;
use std::ops::Deref;
use std::os::fd::{FromRawFd, OwnedFd};

use super::is_ready;
use urxe_device::{CmEvent, CmEventKind, CmFile, CmParam, CmQpType, ConnectionParam, PortSpace};

/// An event file that is closed at the end.
pub struct File {
    pub file: CmFile,
    pub fd: Option<OwnedFd>,
}

impl Deref for File {
    type Target = CmFile;

    fn deref(&self) -> &CmFile {
        &self.file
    }
}

impl File {
    pub fn open() -> Self {
        let file = CmFile::open(true, false).unwrap();
        // SAFETY: a descriptor that was just made for us.
        let fd = Some(unsafe { OwnedFd::from_raw_fd(file.fd()) });
        Self { file, fd }
    }

    pub fn is_readable(&self) -> bool {
        is_ready(self.fd(), libc::POLLIN, 0)
    }

    pub fn id(&self, space: PortSpace) -> u32 {
        let kind = match space {
            PortSpace::Udp => CmQpType::Ud,
            _ => CmQpType::Rc,
        };
        self.create_id(7, space, kind).unwrap()
    }

    /// The next event, which has to be of this kind.
    pub fn expect(&self, kind: CmEventKind) -> CmEvent {
        let event = self.next_event().unwrap();
        assert_eq!(event.kind, kind, "{event:?}");
        event
    }

    pub fn listen_at(&self, space: PortSpace, address: SocketAddr, backlog: u32) -> u32 {
        let id = self.id(space);
        self.bind(id, address).unwrap();
        self.listen(id, backlog).unwrap();
        id
    }

    /// Binds an identifier to a port that the device chooses.
    pub fn bound(&self, space: PortSpace) -> (u32, SocketAddr) {
        let id = self.id(space);
        self.bind(id, ([127, 0, 0, 1], 0).into()).unwrap();
        (id, self.query(id).unwrap().source.unwrap())
    }

    /// The same, and listens on it.
    pub fn listening(&self) -> (u32, SocketAddr) {
        let (id, address) = self.bound(PortSpace::Tcp);
        self.listen(id, 0).unwrap();
        (id, address)
    }

    /// An identifier that asks for a connection to `address`.
    pub fn ask(&self, address: SocketAddr, param: &ConnectionParam) -> u32 {
        let id = self.resolved(PortSpace::Tcp, address);
        self.connect(id, param).unwrap();
        id
    }

    /// An identifier with a route to `address`.
    pub fn resolved(&self, space: PortSpace, address: SocketAddr) -> u32 {
        let id = self.id(space);
        self.resolve_address(id, None, address).unwrap();
        self.expect(CmEventKind::AddrResolved);
        self.resolve_route(id).unwrap();
        self.expect(CmEventKind::RouteResolved);
        id
    }
}

/// What a program asks for whose queue pair has this number.
pub fn param(qp_num: u32, data: &[u8]) -> ConnectionParam {
    ConnectionParam {
        qp_num,
        private_data: data.to_vec(),
        responder_resources: 3,
        initiator_depth: 5,
        retry_count: 6,
        rnr_retry_count: 7,
        ..ConnectionParam::default()
    }
}

/// What an event of a connection tells of the other end.
pub fn connection(event: &CmEvent) -> &ConnectionParam {
    match &event.param {
        CmParam::Connection(param) => param,
        other => panic!("{other:?}"),
    }
}

pub fn errno<T>(result: std::io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

/// Wants a command to be refused for this reason.
#[track_caller]
pub fn refused<T>(result: std::io::Result<T>, code: i32) {
    assert_eq!(errno(result), Some(code));
}
