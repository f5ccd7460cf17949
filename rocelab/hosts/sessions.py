"""Reaches hosts by ssh or Slurm, with one session for each, and runs the agent there.

    with Sessions(inventory) as sessions:
        sessions.open()                      # says which hosts cannot be reached
        sessions["node01"].ask("find", programs=["iperf3"])

ClusterShell starts the connections and reads them: the system's ssh with its configuration, through a tree of gateways
where the site has one (topology.conf). In an allocation of Slurm a job step does the same for each host.
"""

from __future__ import annotations

import contextlib
import shlex
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Final, Self

from ClusterShell.Event import EventHandler
from ClusterShell.Task import task_self
from ClusterShell.Worker.Exec import ExecWorker
from ClusterShell.Worker.Ssh import WorkerSsh

from rocelab.hosts import bundle
from rocelab.hosts.agent import SILENCE_MAX_S
from rocelab.hosts.inventory import Inventory
from rocelab.hosts.session import HostError, Session

#: How long it may take until a host's agent says its first word: a login, and the start of Python
#: on a busy host.
START_LIMIT_S: Final = 60.0
_CONNECT_LIMIT_S: Final = 15
#: How many connections are begun at the same time, or a gateway's sshd turns some away
#: (MaxStartups, sshd_config(5)).
STARTS_AT_ONCE: Final = 32
#: How often an agent is asked for a sign of life.
ALIVE_EVERY_S: Final = SILENCE_MAX_S / 6
_CLOSE_LIMIT_S: Final = 20.0
#: In a session of their own, or Ctrl-C would end the connections before what they carry.
_OWN_SESSION: Final = "setsid"
#: ssh ends by itself where a host has vanished, also when rocelab is no more.
_SIGNS_OF_LIFE: Final = (f"-oServerAliveInterval={SILENCE_MAX_S / 3:.0f}", "-oServerAliveCountMax=3")


class Sessions(Mapping[str, Session]):
    """The sessions of a run, by name of the host. Has to be closed."""

    def __init__(self, inventory: Inventory) -> None:
        """Starts nothing yet."""
        self._inventory = inventory
        self._sessions = {name: Session(name, self._sender(name)) for name in inventory.names}
        self._engine = _Engine(inventory, self._sessions)

    def _sender(self, name: str) -> Any:
        return lambda line: self._engine.send(name, line)

    def open(self) -> dict[str, str]:
        """Reach all hosts. Returns why some cannot be reached, by name; those are lost, and the others are there."""
        self._engine.start()
        waves = -(-len(self) // STARTS_AT_ONCE)
        deadline_s = time.monotonic() + START_LIMIT_S * waves
        failures = {}
        for name, session in self.items():
            try:
                _await(session.introduction, deadline_s)
            except HostError as failure:
                failures[name] = str(failure)
            except TimeoutError:
                session.lose(f"{name}: no agent has answered within {START_LIMIT_S:g} s{_words(session)}")
                failures[name] = str(session.lost)
        for session in self.values():
            if session.lost is None:
                self._set_clock(session)
        return failures

    @staticmethod
    def _set_clock(session: Session) -> None:
        with contextlib.suppress(HostError):
            for _ in range(3):
                sent_s = time.time()
                answer = session.ask("alive")
                session.clock.note(sent_s, answer["time_s"], time.time())

    def close(self) -> None:
        """End the agents with all that they run, and wait for that."""
        for session in self.values():
            session.lose(f"{session.name}: the session was closed")
        self._engine.stop()

    def __getitem__(self, name: str) -> Session:
        return self._sessions[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sessions)

    def __len__(self) -> int:
        return len(self._sessions)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _await(introduction: Future[Any], deadline_s: float) -> None:
    introduction.result(max(0.0, deadline_s - time.monotonic()))


class _Engine(EventHandler):  # type: ignore[misc]
    """ClusterShell's loop in a thread: starts connections, reads them, and writes what other threads send."""

    def __init__(self, inventory: Inventory, sessions: Mapping[str, Session]) -> None:
        super().__init__()
        self._inventory = inventory
        self._sessions = sessions
        self._waiting = list(sessions)
        self._starting: set[str] = set()
        self._workers: dict[str, Any] = {}
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rocelab-hosts", daemon=True)
        self._port: Any = None

    # From other threads

    def start(self) -> None:
        """Begin. Returns at once."""
        self._thread.start()
        self._ready.wait()

    def send(self, name: str, line: bytes) -> None:
        """Have a line written to a host; nothing if all are gone."""
        if (port := self._port) is not None:
            port.msg_send((name, line))

    def stop(self) -> None:
        """Let all hosts go and wait until their agents have ended."""
        self.send("", b"")
        if not self._thread.is_alive():
            return
        self._thread.join(_CLOSE_LIMIT_S)

    # In its thread

    def _run(self) -> None:
        try:
            self._serve()
        finally:
            self._port = None
            for session in self._sessions.values():
                session.lose(f"{session.name}: the connections have ended")
            self._ready.set()

    def _serve(self) -> None:
        self._task = task = task_self()
        # Nothing is kept of what is read, sessions never wait for each other, and ssh is what is
        # wanted, whatever the site's own configuration of ClusterShell has.
        for name, value in (("stdout_msgtree", False), ("stderr_msgtree", False), ("stderr", True)):
            task.set_default(name, value)
        task.set_default("distant_worker", WorkerSsh)
        task.set_default("local_worker", ExecWorker)
        task.set_info("fanout", len(self._sessions) + 1)
        task.set_info("ssh_path", f"{_OWN_SESSION} ssh")
        task.set_info("connect_timeout", _CONNECT_LIMIT_S)
        # The first that names an option is obeyed, so a person's own come first.
        task.set_info("ssh_options", shlex.join([*self._inventory.table.ssh_options, *_SIGNS_OF_LIFE]))
        self._port = task.port(handler=self)
        task.timer(ALIVE_EVERY_S, handler=self, interval=ALIVE_EVERY_S, autoclose=True)
        self._begin_more()
        self._ready.set()
        task.resume()

    def _begin_more(self) -> None:
        """Begin with as many as may be begun at the same time."""
        self._starting = {name for name in self._starting if not self._sessions[name].introduction.done()}
        while self._waiting and len(self._starting) < STARTS_AT_ONCE:
            name = self._waiting.pop(0)
            self._starting.add(name)
            command = bundle.command(self._inventory.table.python)
            if self._inventory.launcher == "slurm":
                worker = self._task.shell(_by_slurm(command), nodes=name, handler=self, remote=False, tree=False)
            else:
                worker = self._task.shell(command, nodes=name, handler=self)
            self._workers[name] = worker

    def ev_pickup(self, worker: Any, node: str) -> None:  # noqa: ARG002, ClusterShell's
        """A connection is begun."""
        worker.write(bundle.first_line())

    def ev_read(self, worker: Any, node: str, sname: str, msg: bytes) -> None:
        """A line has come."""
        session = self._sessions[node]
        if sname == worker.SNAME_STDERR:
            session.note(msg)
        else:
            session.hear(msg)
        self._begin_more()

    def ev_hup(self, worker: Any, node: str, rc: int | None) -> None:  # noqa: ARG002, as above
        """A connection has ended."""
        session = self._sessions[node]
        session.lose(f"{node} {_why_ended(self._inventory, rc, begun=session.introduction.done())}{_words(session)}")
        self._begin_more()

    def ev_msg(self, port: Any, msg: tuple[str, bytes]) -> None:  # noqa: ARG002, as above
        """Another thread wants something: a line for a host, or the end."""
        name, line = msg
        if name:
            self._workers[name].write(line)
            return
        self._waiting.clear()
        for worker in self._workers.values():
            worker.set_write_eof()
        closed, self._port = self._port, None
        self._task.remove_port(closed)

    def ev_timer(self, timer: Any) -> None:  # noqa: ARG002, as above
        """Ask for signs of life, and give up hosts that show none."""
        for name, session in self._sessions.items():
            if session.lost is not None or not session.introduction.done():
                continue
            if time.monotonic() - session.heard_s > SILENCE_MAX_S:
                session.lose(f"{name}: nothing was heard of it for {SILENCE_MAX_S:g} s")
                self._workers[name].abort()
            else:
                self._workers[name].write(b'{"id": 0, "op": "alive"}\n')
        self._begin_more()


def _by_slurm(command: str) -> str:
    """A job step on one host of the allocation, beside others: it takes no processors away from them."""
    options = ("--nodes=1", "--ntasks=1", "--nodelist=%h", "--overlap", "--unbuffered", "--kill-on-bad-exit=0")
    bindings = ("--cpu-bind=none", "--mem=0", "--mpi=none", "--quiet")
    return f"exec {_OWN_SESSION} srun {' '.join((*options, *bindings))} {command}"


def _why_ended(inventory: Inventory, status: int | None, *, begun: bool) -> str:
    by = "Slurm" if inventory.launcher == "slurm" else "ssh"
    if begun:
        return f"is lost: the connection by {by} has ended"
    if status == 127:
        return f"has no {inventory.table.python}: install Python 3.9 or newer, or name one with `python` in hosts.toml"
    if status == 255 and by == "ssh":
        return "cannot be reached by ssh"
    return f"cannot be used: what was started there by {by} ended with exit status {status}"


def _words(session: Session, lines: int = 3) -> str:
    """The last words that came with it."""
    said = [line for line in session.said if line.strip()][-lines:]
    return f": {' / '.join(said)}" if said else ""
