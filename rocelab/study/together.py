"""Many pairs of programs that send at the same time, and count only if they did.

The servers are started first. Once all of them listen, the clients are started, a batch at a time. They are held until
all are there and then let go together, so that none has to start against the load of the others. Those that sleep once
they are connected (perftest's) are held in their sleep, with their servers, which may poll for them; the others are
held by a shell that stops itself in front of them. What a program measures leaves out a margin at both ends of its
run. All of it counts only if the programs report no more than what left the nodes in the middle of the run: else some
measured while others were not sending.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rocelab.fabric.base import Finished, Launcher, LaunchError, Node, Running
from rocelab.study.network_events import Events, NetworkEvents
from rocelab.tools.base import Executable, Output, ToolError, last_words
from rocelab.tools.mesh import MeshMethod, MeshRequest

#: What is done beside the programs, while they are measured.
Meanwhile = Callable[[], None]

#: How long all servers together may take to listen.
_LISTEN_LIMIT_S = 60.0
#: How long a client may take to connect. The servers listen already.
_CONNECT_LIMIT_S = 10.0
_CONNECT_PAUSE_S = 0.002
#: A shell that stops itself, and is the program afterwards.
_HELD = ("sh", "-c", 'kill -STOP $$; exec "$@"', "sh")
#: How often clients are let go during the margin: one that was slow to stop has missed the first
#: time.
_RELEASE_EVERY_S = 0.25
#: Part of the connections that may have moved nothing. More is not the network's doing.
_IDLE_MAX = 0.05
#: The nice value of a process that goes before all others.
_FIRST_OF_ALL = -20
#: Part by which the programs may report more than was counted: they begin and end a little apart.
_CLOCKS_WITHIN = 0.05


@dataclass
class Connection:
    """One pair of programs, as far as they were started."""

    sender: Node
    receiver: Node
    method: MeshMethod
    request: MeshRequest
    client_cores: Collection[int] = ()
    server_cores: Collection[int] = ()
    """What its ends are pinned to; none: the kernel chooses."""
    server: Running | None = None
    client: Running | None = None

    @property
    def name(self) -> str:
        """From where to where."""
        return f"{self.sender.name} to {self.receiver.name}"


@dataclass(frozen=True, slots=True)
class Moved:
    """What came of connections that all did well."""

    mbps: tuple[float, ...]
    """Of each, in 10^6 bit/s."""
    idle: int
    """Connections that moved nothing while it was measured: on a full switch port, some may have to wait that long."""
    wire_mbps: float
    """What left all nodes together, with headers and with what was sent again, in the middle of the run."""
    start_s: float
    """How long starting the clients took, before they were let go."""
    cpu_s: float
    """User and system seconds of all programs from their start to their end."""
    events: Events
    """What happened to packets from the moment at which the programs were let go until the end of what is measured."""


class Together:
    """Pairs of programs over one link, all of which measure as long and with the same margins."""

    def __init__(
        self, launcher: Launcher, nodes: Sequence[Node], link: str, batches: Sequence[Sequence[Connection]]
    ) -> None:
        """Starts nothing yet. `nodes` are those whose packets are watched; no node sends twice in a batch."""
        self._launcher = launcher
        self._nodes = nodes
        self._link = link
        self._batches = batches
        self.connections = [each for batch in batches for each in batch]
        self._start_s = 0.0
        self._wire_mbps = 0.0
        self._events: Events = ()
        self._clients: list[Finished] = []
        self._servers: list[Finished] = []

    @property
    def hung(self) -> bool:
        """A program had to be stopped at the time limit."""
        return any(end.timed_out for end in (*self._clients, *self._servers))

    def run(self, deadline_s: float, log: Path | None, meanwhile: Meanwhile | None = None) -> Moved:
        """Carry it out. `meanwhile` is called when the time that is measured begins.

        LaunchError or ToolError unless every connection did well and all ran at the same time.
        """
        self._start(log)
        self._count_bytes(meanwhile)
        self._clients = _wait([each.client for each in self.connections], deadline_s)
        self._servers = _wait([each.server for each in self.connections], deadline_s)
        return self._read()

    def _start(self, log: Path | None) -> None:
        for each in self.connections:
            each.server = self._launch(each.receiver, each.method.server(each.request), each.server_cores, log)
        deadline_s = time.monotonic() + _LISTEN_LIMIT_S
        for each in self.connections:
            assert each.server is not None
            left_s = max(0.0, deadline_s - time.monotonic())
            self._launcher.wait_until_listening(each.receiver, each.server, each.request.port, timeout_s=left_s)
        first_s = time.monotonic()
        for batch in self._batches:
            for each in batch:
                command = each.method.client(each.request)
                held = () if each.method.head_start_s > 0 else _HELD
                each.client = self._launch(each.sender, [*held, *command], each.client_cores, log)
            for each in batch:
                if each.method.head_start_s > 0:
                    self._hold(each)
        self._start_s = time.monotonic() - first_s
        # The last client is still asleep, and would begin later than those that do not sleep. That
        # it is stopped does not make its sleep longer.
        time.sleep(max(each.method.head_start_s for each in self.connections))

    def _hold(self, connection: Connection) -> None:
        """Stop both ends once they are connected, in their sleep: then the server listens no more."""
        assert connection.client is not None
        deadline_s = time.monotonic() + _CONNECT_LIMIT_S
        while self._launcher.is_listening(connection.receiver, connection.request.port):
            if connection.client.poll() is not None:
                return  # Its last words are read at the end.
            if time.monotonic() > deadline_s:
                raise LaunchError(f"{connection.name}: the client did not connect within {_CONNECT_LIMIT_S:g} s")
            time.sleep(_CONNECT_PAUSE_S)
        assert connection.server is not None
        for end in (connection.client, connection.server):
            end.signal(signal.SIGSTOP)

    def _count_bytes(self, meanwhile: Meanwhile | None) -> None:
        """Let the clients go, wait for the middle of the run, and see what leaves the nodes during it.

        And what happens to packets on the way, of all nodes.
        """
        senders = {each.sender.name: each.sender for each in self.connections}.values()

        def sent_bytes() -> list[tuple[int, float]]:
            """Of each node, and when: to ask them all may take a while."""
            return [
                (self._launcher.sent_bytes(node, node.interfaces[self._link]), time.monotonic()) for node in senders
            ]

        request = self.connections[0].request
        watched = NetworkEvents(self._launcher, self._nodes, self._link, self._nic())
        with _precedence():
            watched.begin()
            for _ in range(round(request.margin_s / _RELEASE_EVERY_S)):
                for each in self.connections:
                    for end in (each.server, each.client):
                        assert end is not None
                        end.signal(signal.SIGCONT)
                time.sleep(_RELEASE_EVERY_S)
            before = sent_bytes()
            if meanwhile is not None:
                meanwhile()
            time.sleep(request.measured_s)
            after = sent_bytes()
            self._events = watched.end()
        self._wire_mbps = sum(
            (last - first) * 8e-6 / (end_s - start_s)
            for (first, start_s), (last, end_s) in zip(before, after, strict=True)
        )

    def _launch(self, node: Node, argv: Sequence[str], cores: Collection[int], log: Path | None) -> Running:
        # Where there are far more programs than cores, none is pinned: the kernel spreads them
        # better.
        return self._launcher.start(node, argv, cores=cores, log=log)

    def _nic(self) -> Executable | None:
        return next((nic for each in self.connections if (nic := each.method.nic) is not None), None)

    def _read(self) -> Moved:
        every, errors = [], []
        for each, client, server in zip(self.connections, self._clients, self._servers, strict=True):
            try:
                ends = _output("client", client), _output("server", server)
                every.append(each.method.read_mbps(each.request, *ends))
            except ToolError as error:
                errors.append(f"{each.name}: {error}")
        if errors:
            raise ToolError(f"{len(errors)} of {len(self.connections)} connections failed; {errors[0]}")
        idle, measured_s = sum(mbps <= 0 for mbps in every), self.connections[0].request.measured_s
        if idle > _IDLE_MAX * len(every):
            raise ToolError(f"{idle} of {len(every)} connections moved nothing in {measured_s} s")
        # One alone has no others that it could miss.
        if len(every) > 1 and sum(every) > self._wire_mbps * (1 + _CLOCKS_WITHIN):
            raise ToolError(
                f"the programs report {sum(every):.1f} Mbps together, but {self._wire_mbps:.1f} Mbps left the nodes: "
                "they did not all measure at the same time. Give the test a larger margin_s, or the links a lower rate"
            )
        cpu_s = sum(end.cpu_s for end in (*self._clients, *self._servers))
        return Moved(tuple(every), idle, self._wire_mbps, self._start_s, cpu_s, self._events)

    def stop(self) -> None:
        """End whatever still runs: nothing after a good run. All are told first, or each would take its turn."""
        left = [each for pair in self.connections for each in (pair.client, pair.server) if each]
        for program in left:
            program.signal(signal.SIGKILL)
        for program in left:
            with contextlib.suppress(LaunchError):
                program.stop()


@contextlib.contextmanager
def _precedence() -> Iterator[None]:
    """Go before all others while the block lasts, where the user may (root, or with CAP_SYS_NICE).

    Each of hundreds of programs that is let go would else take the processor for its time slice.
    The last would be let go seconds after the first, and the bytes be counted when they are done.
    """
    before = os.getpriority(os.PRIO_PROCESS, 0)
    try:
        os.setpriority(os.PRIO_PROCESS, 0, _FIRST_OF_ALL)
    except PermissionError:
        yield
        return
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, before)


def _wait(programs: Sequence[Running | None], deadline_s: float) -> list[Finished]:
    return [each.wait(max(0.0, deadline_s - time.monotonic())) for each in programs if each is not None]


def _output(end: str, finished: Finished) -> Output:
    output = Output(finished.stdout, finished.stderr, finished.exit_status)
    if finished.timed_out:
        raise ToolError(f"the {end} hung and was stopped ({finished.stopped_because}): {last_words(output)}")
    return output
