//! Event files of communication management, and what tests ask of them.

use std::net::SocketAddr;
use std::os::fd::{FromRawFd, OwnedFd};

use urxe_device::{CmEvent, CmEventKind, CmFile, CmParam, CmQpType, ConnectionParam, PortSpace};

/// An event file that is closed at the end.
pub struct File {
    pub file: CmFile,
    pub fd: Option<OwnedFd>,
}

impl File {
    pub fn open() -> Self {
        let file = CmFile::open(true, false).unwrap();
        // SAFETY: a descriptor that was just made for us.
        let fd = Some(unsafe { OwnedFd::from_raw_fd(file.fd()) });
        Self { file, fd }
    }

    pub fn is_readable(&self) -> bool {
        let mut poll = libc::pollfd {
            fd: self.file.fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one pollfd.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
    }

    pub fn id(&self, space: PortSpace) -> u32 {
        let kind = match space {
            PortSpace::Udp => CmQpType::Ud,
            _ => CmQpType::Rc,
        };
        self.file.create_id(7, space, kind).unwrap()
    }

    /// The next event, which has to be of this kind.
    pub fn expect(&self, kind: CmEventKind) -> CmEvent {
        let event = self.file.next_event().unwrap();
        assert_eq!(event.kind, kind, "{event:?}");
        event
    }

    pub fn listen(&self, space: PortSpace, address: SocketAddr, backlog: u32) -> u32 {
        let id = self.id(space);
        self.file.bind(id, address).unwrap();
        self.file.listen(id, backlog).unwrap();
        id
    }

    /// An identifier with a route to `address`.
    pub fn resolved(&self, space: PortSpace, address: SocketAddr) -> u32 {
        let id = self.id(space);
        self.file.resolve_address(id, None, address).unwrap();
        self.expect(CmEventKind::AddrResolved);
        self.file.resolve_route(id).unwrap();
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
