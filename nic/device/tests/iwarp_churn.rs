//! Connections of iWARP devices that are made and broken in random order, by both ends, by peers
//! that are killed, and by strangers at the listening port. Nothing of them is left in the end, and
//! the listener still serves. `URXE_CHURN_SECONDS` says for how long, `URXE_CHURN_SEED` from which
//! seed.
mod support;

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use oorandom::Rand32;
use support::cm::param;
use support::streams::{OFFER, choose_iwarp, reset, to_init};
use support::{End, is_ready, post_recv, request};
use urxe_device::{
    CmEvent, CmEventKind, CmFile, CmQpType, ConnectionParam, PortSpace, Qp, QpState, QpType,
    SendOp, SendTarget,
};
use urxe_iwarp::Initiator;

/// Without `URXE_CHURN_SECONDS`.
const SECONDS: u64 = 3;
/// The clients that are killed find the listener's port here.
const ADDRESS_VARIABLE: &str = "URXE_CHURN_ADDRESS";
const STEPS_PER_ROUND: u32 = 300;
const CLIENTS_MAX: usize = 24;
const STRANGERS_MAX: usize = 40;
const CHILDREN_MAX: usize = 3;
/// Time for all of a round to be gone: more than a stream's (twice 2 s) and a set-up's (10 s).
const PATIENCE: Duration = Duration::from_secs(20);
/// What the process may have grown by after its first round, bytes.
const GROWTH_BYTES: usize = 16 << 20;
/// Descriptors that the process opens once, when they are first needed. A round opens hundreds.
const ONCE_DESCRIPTORS: usize = 8;
const RECEIVES: u64 = 8;

fn number(variable: &str, usual: u64) -> u64 {
    let wanted = std::env::var(variable).ok();
    wanted.map_or(usual, |wanted| wanted.parse().expect("a number"))
}

fn end() -> End {
    choose_iwarp();
    End::new(4096)
}

/// A connection, from when it is asked for. A queue pair may be gone before it.
struct Connection {
    qp: Option<Qp>,
    is_established: bool,
}

/// What one end has: an event file, and its connections by their identifiers.
struct Side<'a> {
    end: &'a End,
    file: CmFile,
    _fd: OwnedFd,
    connections: HashMap<u32, Connection>,
}

impl<'a> Side<'a> {
    fn new(end: &'a End) -> Self {
        let file = CmFile::open(true, true).unwrap();
        // SAFETY: a descriptor that was just made for us.
        let fd = unsafe { OwnedFd::from_raw_fd(file.fd()) };
        Self {
            end,
            file,
            _fd: fd,
            connections: HashMap::new(),
        }
    }

    fn id(&self) -> u32 {
        let created = self.file.create_id(0, PortSpace::Tcp, CmQpType::Rc);
        created.unwrap()
    }

    /// The next event, if there is one.
    fn event(&self) -> Option<CmEvent> {
        match self.file.next_event() {
            Ok(event) => Some(event),
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => None,
            Err(error) => panic!("{error}"),
        }
    }

    fn add(&mut self, id: u32) -> ConnectionParam {
        let qp = self.end.qp(QpType::Rc);
        to_init(&qp);
        for wr_id in 0..RECEIVES {
            post_recv(&qp, wr_id, &[self.end.sge(0, 64)]);
        }
        let number = qp.number().get();
        let connection = Connection {
            qp: Some(qp),
            is_established: false,
        };
        self.connections.insert(id, connection);
        param(number, b"")
    }

    /// Takes a connection down, whatever it is at.
    fn drop_connection(&mut self, id: u32) {
        if self.connections.remove(&id).is_some() {
            self.file.destroy_id(id).unwrap();
        }
    }

    /// One of the connections.
    fn any(&self, random: &mut Rand32) -> Option<u32> {
        let mut ids: Vec<_> = self.connections.keys().copied().collect();
        ids.sort_unstable();
        let count = u32::try_from(ids.len()).unwrap();
        (count > 0).then(|| ids[random.rand_range(0..count) as usize])
    }

    /// Does something to one of the connections.
    fn disturb(&mut self, random: &mut Rand32) {
        let Some(id) = self.any(random) else {
            return;
        };
        match random.rand_range(0..4) {
            // It may have no connection yet, or any more.
            0 => drop(self.file.disconnect(id)),
            1 => self.drop_connection(id),
            2 => self.connections.get_mut(&id).unwrap().qp = None,
            _ => self.send_on(id),
        }
    }

    /// Sends, if it can: a peer that has no receive any more ends the connection.
    fn send_on(&self, id: u32) {
        let connection = &self.connections[&id];
        if let Some(qp) = connection.qp.as_ref().filter(|_| connection.is_established)
            && qp.state().unwrap() == QpState::ReadyToSend
        {
            let sges = [self.end.sge(64, 64)];
            for op in [SendOp::Send, self.end.write_op(128), self.end.read_op(256)] {
                // It may be full, or have lost its connection just now.
                let _ = qp.post_send(&request(1, op, &sges, SendTarget::Connection));
            }
        }
    }

    fn drop_all(&mut self) {
        for id in self.connections.keys().copied().collect::<Vec<_>>() {
            self.drop_connection(id);
        }
    }

    fn set_established(&mut self, id: u32) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.is_established = true;
        }
    }
}

struct Churn<'a> {
    random: Rand32,
    client: Side<'a>,
    server: Side<'a>,
    address: SocketAddr,
    strangers: Vec<TcpStream>,
    children: Vec<Child>,
    /// What happened, by name.
    counts: HashMap<&'static str, u32>,
}

impl Churn<'_> {
    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn step(&mut self) {
        match self.random.rand_range(0..12) {
            0..4 if self.client.connections.len() < CLIENTS_MAX => {
                let id = self.client.id();
                self.client.add(id);
                let asked = self.client.file.resolve_address(id, None, self.address);
                asked.unwrap();
            }
            4 | 5 => self.client.disturb(&mut self.random),
            6 | 7 => self.server.disturb(&mut self.random),
            8 | 9 => self.be_strange(),
            10 => self.start_or_kill(),
            _ => std::thread::sleep(Duration::from_millis(2)),
        }
        self.follow();
    }

    /// Does what events ask for.
    fn follow(&mut self) {
        while let Some(event) = self.client.event() {
            let id = event.id;
            if !self.client.connections.contains_key(&id) {
                continue;
            }
            match event.kind {
                CmEventKind::AddrResolved => self.client.file.resolve_route(id).unwrap(),
                CmEventKind::RouteResolved => {
                    let qp = self.client.connections[&id].qp.as_ref();
                    let qp_num = qp.map(|qp| qp.number().get());
                    let param = param(qp_num.unwrap_or(1), b"");
                    let asked = self.client.file.connect(id, &param);
                    assert_eq!(asked.is_ok(), qp_num.is_some(), "{asked:?}");
                }
                CmEventKind::Established => {
                    self.count("connected");
                    self.client.set_established(id);
                }
                _ => {
                    self.count("ended");
                    self.client.drop_connection(id);
                }
            }
        }
        while let Some(event) = self.server.event() {
            let id = event.id;
            match event.kind {
                CmEventKind::ConnectRequest => self.answer(id),
                CmEventKind::Established => self.server.set_established(id),
                _ => self.server.drop_connection(id),
            }
        }
        self.client.end.cq.poll(1024, |_| ());
        while is_ready(self.client.end.nic.event_fd(), libc::POLLIN, 0) {
            self.client.end.nic.next_event().unwrap();
        }
    }

    fn answer(&mut self, id: u32) {
        match self.random.rand_range(0..10) {
            0 => {
                // The peer may be gone.
                let _ = self.server.file.reject(id, 0, b"no");
                self.server.file.destroy_id(id).unwrap();
            }
            1 => drop(self.server.file.destroy_id(id).unwrap()),
            _ => {
                let param = self.server.add(id);
                if self.server.file.accept(id, None, Some(&param)).is_err() {
                    self.server.drop_connection(id);
                }
            }
        }
    }

    /// Has a stranger come, or go.
    fn be_strange(&mut self) {
        if self.strangers.len() >= STRANGERS_MAX || self.random.rand_range(0..3) == 0 {
            let count = u32::try_from(self.strangers.len()).unwrap();
            if count > 0 {
                let at = self.random.rand_range(0..count);
                let stranger = self.strangers.swap_remove(at as usize);
                leave(stranger, self.random.rand_range(0..2) == 0);
            }
            return;
        }
        let mut stranger = TcpStream::connect(self.address).unwrap();
        stranger.set_nonblocking(true).unwrap();
        let request = asking();
        let len = request.len() as u32;
        let cut = self.random.rand_range(1..len) as usize;
        // What the other end has closed by then is none of the strangers' concern.
        let _ = match self.random.rand_range(0..5) {
            0 => Ok(()),
            1 => stranger.write_all(&[0x55; 300]),
            2 => stranger.write_all(&request[..cut]),
            3 => stranger.write_all(&request),
            _ => stranger.write_all(&[&request[..], &[0xa5; 700]].concat()),
        };
        self.count("strangers");
        if self.random.rand_range(0..3) == 0 {
            leave(stranger, self.random.rand_range(0..2) == 0);
        } else {
            self.strangers.push(stranger);
        }
    }

    /// Starts a client that is a process of its own, or kills one.
    fn start_or_kill(&mut self) {
        if self.children.len() < CHILDREN_MAX && self.random.rand_range(0..2) == 0 {
            let child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "a_client_that_is_killed"])
                .env(ADDRESS_VARIABLE, self.address.to_string())
                .stdout(std::process::Stdio::null())
                .spawn();
            self.children.push(child.unwrap());
        } else if self.kill_one() {
            self.count("killed");
        }
    }

    fn kill_one(&mut self) -> bool {
        let child = self.children.pop();
        child.is_some_and(|mut child| child.kill().and_then(|()| child.wait()).is_ok())
    }

    /// Ends all, and waits until nothing is left.
    fn end_round(&mut self) {
        while self.kill_one() {}
        self.strangers.clear();
        for side in [&mut self.client, &mut self.server] {
            side.drop_all();
        }
        let start = Instant::now();
        // What was asked for before is still answered.
        loop {
            self.follow();
            self.server.drop_all();
            if self.client.end.nic.qp_stats().is_empty() && start.elapsed().as_millis() > 50 {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "queue pairs are left");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until there are no more descriptors than this.
    fn wait_for_descriptors(&mut self, most: usize) {
        let start = Instant::now();
        while files().len() > most {
            self.follow();
            assert!(
                start.elapsed() < PATIENCE,
                "more than {most} descriptors, {:?}: {:?}",
                self.counts,
                files()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Churn<'_> {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
        }
    }
}

/// Ends a stream in order, or by RST.
fn leave(mut stranger: TcpStream, by_reset: bool) {
    // Bytes that were not read would make it a RST in any case.
    let _ = stranger.read(&mut [0; 4096]);
    if by_reset {
        reset(stranger);
    }
}

/// What asks for a connection.
fn asking() -> Vec<u8> {
    let now = urxe_proto::Instant::from_nanos(0);
    let initiator = Initiator::new(now, OFFER, b"stranger").unwrap();
    initiator.output().to_vec()
}

/// What is behind the descriptors of this process.
fn files() -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir("/proc/self/fd").unwrap();
    // One may be closed meanwhile.
    let files = entries.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    files.collect()
}

/// Memory that the process has, bytes.
fn resident_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[test]
fn connections_that_come_and_go_leave_nothing_behind() {
    if std::env::var_os(ADDRESS_VARIABLE).is_some() {
        return;
    }
    let seed = number("URXE_CHURN_SEED", 1);
    let until = Instant::now() + Duration::from_secs(number("URXE_CHURN_SECONDS", SECONDS));
    let end = end();
    let (client, server) = (Side::new(&end), Side::new(&end));
    let listener = server.id();
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    server.file.bind(listener, any).unwrap();
    server.file.listen(listener, 0).unwrap();
    let address = server.file.query(listener).unwrap().source.unwrap();
    let mut churn = Churn {
        random: Rand32::new(seed),
        client,
        server,
        address,
        strangers: Vec::new(),
        children: Vec::new(),
        counts: HashMap::new(),
    };
    let most = files().len() + ONCE_DESCRIPTORS;
    let mut grown_from = None;
    let mut rounds = 0;
    while rounds < 2 || Instant::now() < until {
        (0..STEPS_PER_ROUND).for_each(|_| churn.step());
        churn.end_round();
        churn.wait_for_descriptors(most);
        let now = resident_bytes();
        let first = *grown_from.get_or_insert(now);
        assert!(
            now < first + GROWTH_BYTES,
            "seed {seed}, round {rounds}: memory grew from {first} to {now} bytes"
        );
        rounds += 1;
    }
    println!("seed {seed}, {rounds} rounds: {:?}", churn.counts);
    for what in ["connected", "ended", "strangers", "killed"] {
        assert!(churn.counts.contains_key(what), "no {what}, seed {seed}");
    }
}

/// What the other test starts: it connects, sends for as long as it can, and does not end.
#[test]
fn a_client_that_is_killed() {
    let Ok(address) = std::env::var(ADDRESS_VARIABLE) else {
        return;
    };
    let address = address.parse().unwrap();
    let end = end();
    let mut side = Side::new(&end);
    loop {
        let id = side.id();
        let param = side.add(id);
        side.file.resolve_address(id, None, address).unwrap();
        while side.connections.contains_key(&id) {
            let Some(event) = side.event() else {
                side.send_on(id);
                end.cq.poll(1024, |_| ());
                std::thread::sleep(Duration::from_micros(200));
                continue;
            };
            match event.kind {
                CmEventKind::AddrResolved => side.file.resolve_route(id).unwrap(),
                CmEventKind::RouteResolved => side.file.connect(id, &param).unwrap(),
                CmEventKind::Established => side.set_established(id),
                _ => side.drop_connection(id),
            }
        }
    }
}
