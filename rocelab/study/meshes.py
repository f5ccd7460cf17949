"""Carries out one step of many pairs of programs that send at the same time: a full mesh, an incast, a bisection.

The servers are started first. Once all of them listen, the clients are started, a pair on every
node at a time. They are held until all are there and then let go together, so that none has to
start against the load of the others. Those that sleep once they are connected (perftest's) are held
in their sleep, with their servers, which may poll for them; the others are held by a shell that
stops itself in front of them. What a program measures
leaves out a margin at both ends of its run. A mesh counts only if the programs report no more than
what left the nodes in the middle of the run: else some measured while others were not sending.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from typing_extensions import override

from rocelab.fabric.base import Finished, LaunchError, Node, Running
from rocelab.results import ParamValue, Sample
from rocelab.study import network_events
from rocelab.study.execution import (
    NO_REASON,
    Circumstances,
    Execution,
    Setting,
    StepExecutor,
    now,
    sample_of,
)
from rocelab.study.flows import flows
from rocelab.study.network_events import Events, NetworkEvents
from rocelab.study.steps import MeshStep
from rocelab.tools.base import Output, ToolError, Value, last_words
from rocelab.tools.mesh import MESH_METRIC, MeshRequest

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


@dataclass(frozen=True, slots=True)
class MeshReading:
    """What all moved together, by node in the order of the nodes, in 10^6 bit/s."""

    nodes: tuple[str, ...]
    """Their names."""
    sent_mbps: tuple[float, ...]
    received_mbps: tuple[float, ...]
    wire_mbps: float
    """What left all nodes together, with headers and with what was sent again, in the middle of the run."""
    start_s: float
    """How long starting the clients took, before they were let go."""
    idle_connections: int
    """Connections that moved nothing while it was measured: on a full switch port, some may have to wait that long."""
    cpu_s: float
    """User and system seconds of all programs from their start to their end."""
    events: Events = ()
    """What happened to packets from the moment at which the programs were let go until the end of what is measured."""


@dataclass
class _Connection:
    """One pair of programs, as far as they were started."""

    sender: Node
    receiver: Node
    request: MeshRequest
    server: Running | None = None
    client: Running | None = None

    @property
    def name(self) -> str:
        return f"{self.sender.name} to {self.receiver.name}"


@dataclass
class _Run:
    batches: Sequence[Sequence[_Connection]]
    start_s: float = 0.0
    wire_mbps: float = 0.0
    events: Events = ()

    @property
    def connections(self) -> Sequence[_Connection]:
        return [each for batch in self.batches for each in batch]


class MeshExecutor(StepExecutor[MeshStep]):
    """Runs meshes on the first nodes of a fabric."""

    @override
    def __init__(self, setting: Setting) -> None:
        self._nodes = setting.fabric.nodes
        self._launcher = setting.launcher

    @override
    def samples(
        self, step: MeshStep, execution: Execution[MeshReading], circumstances: Circumstances
    ) -> tuple[Sample, ...]:
        return _samples(step, execution, circumstances)

    @override
    def execute(self, step: MeshStep, log: Path | None) -> Execution[MeshReading]:
        """Run a step to its end. Every program is gone afterwards, also when this is interrupted."""
        started_at, started_s = now(), time.monotonic()
        run = _Run(self._batches(step))
        reading, error, hung = None, None, False
        try:
            deadline_s = time.monotonic() + step.time_limit_s
            self._start(step, run, log)
            self._count_bytes(step, run)
            clients = _wait([each.client for each in run.connections], deadline_s)
            servers = _wait([each.server for each in run.connections], deadline_s)
            hung = any(end.timed_out for end in (*clients, *servers))
            reading = _read(step, run, self._nodes[: step.nodes], clients, servers)
        except (LaunchError, ToolError) as failure:
            error = str(failure)
        finally:
            _stop(run)
        first = run.connections[0]
        return Execution(
            reading=reading,
            error=error,
            hung=hung,
            command=shlex.join(step.method.client(first.request)),
            started_at=started_at,
            duration_s=time.monotonic() - started_s,
        )

    def _batches(self, step: MeshStep) -> list[list[_Connection]]:
        planned = flows(step.test, step.nodes)
        into = Counter(receiver for batch in planned for _, receiver in batch)
        ports = {at: iter(self._launcher.free_ports(self._nodes[at], count)) for at, count in into.items()}
        return [
            [self._connection(step, self._nodes[one], self._nodes[other], next(ports[other])) for one, other in batch]
            for batch in planned
        ]

    def _connection(self, step: MeshStep, sender: Node, receiver: Node, port: int) -> _Connection:
        link = step.link.id
        request = MeshRequest(
            size_bytes=step.size_bytes,
            parallel=step.parallel,
            depth=step.depth,
            measured_s=step.measured_s,
            margin_s=step.margin_s,
            traffic_class=step.traffic_class,
            server_address=receiver.addresses[link],
            client_interface=sender.interfaces[link],
            server_interface=receiver.interfaces[link],
            port=port,
            client_device=sender.devices.get(link),
            server_device=receiver.devices.get(link),
        )
        return _Connection(sender, receiver, request)

    def _start(self, step: MeshStep, run: _Run, log: Path | None) -> None:
        for each in run.connections:
            each.server = self._launch(each.receiver, step.method.server(each.request), log)
        deadline_s = time.monotonic() + _LISTEN_LIMIT_S
        for each in run.connections:
            assert each.server is not None
            left_s = max(0.0, deadline_s - time.monotonic())
            self._launcher.wait_until_listening(each.receiver, each.server, each.request.port, timeout_s=left_s)
        first_s = time.monotonic()
        for batch in run.batches:
            for each in batch:
                command = step.method.client(each.request)
                held = () if step.method.head_start_s > 0 else _HELD
                each.client = self._launch(each.sender, [*held, *command], log)
            if step.method.head_start_s > 0:
                for each in batch:
                    self._hold(each)
        run.start_s = time.monotonic() - first_s

    def _hold(self, connection: _Connection) -> None:
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

    def _count_bytes(self, step: MeshStep, run: _Run) -> None:
        """Let the clients go, wait for the middle of the run, and see what leaves the nodes during it.

        And what happens to packets on the way, of all nodes.
        """
        senders = {each.sender.name: each.sender for each in run.connections}.values()

        def sent_bytes() -> list[tuple[int, float]]:
            """Of each node, and when: to ask them all may take a while."""
            return [
                (self._launcher.sent_bytes(node, node.interfaces[step.link.id]), time.monotonic()) for node in senders
            ]

        watched = NetworkEvents(self._launcher, self._nodes[: step.nodes], step.link.id, step.method.nic)
        with _precedence():
            watched.begin()
            for _ in range(round(step.margin_s / _RELEASE_EVERY_S)):
                for each in run.connections:
                    for end in (each.server, each.client):
                        assert end is not None
                        end.signal(signal.SIGCONT)
                time.sleep(_RELEASE_EVERY_S)
            before = sent_bytes()
            time.sleep(step.measured_s)
            after = sent_bytes()
            run.events = watched.end()
        run.wire_mbps = sum(
            (last - first) * 8e-6 / (end_s - start_s)
            for (first, start_s), (last, end_s) in zip(before, after, strict=True)
        )

    def _launch(self, node: Node, argv: Sequence[str], log: Path | None) -> Running:
        # Not pinned: there are far more programs than cores, and the kernel spreads them better.
        return self._launcher.start(node, argv, log=log)


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


def _stop(run: _Run) -> None:
    """End whatever still runs: nothing after a good step. All are told first, or each would take its time in turn."""
    left = [each for connection in run.connections for each in (connection.client, connection.server) if each]
    for program in left:
        program.signal(signal.SIGKILL)
    for program in left:
        with contextlib.suppress(LaunchError):
            program.stop()


def _read(
    step: MeshStep, run: _Run, nodes: Sequence[Node], clients: Sequence[Finished], servers: Sequence[Finished]
) -> MeshReading:
    """The throughput of every node; ToolError unless every connection did well and all ran at the same time."""
    sent_mbps, received_mbps = [0.0] * step.nodes, [0.0] * step.nodes
    errors = []
    idle = 0
    for each, client, server in zip(run.connections, clients, servers, strict=True):
        try:
            mbps = step.method.read_mbps(each.request, _output("client", client), _output("server", server))
        except ToolError as error:
            errors.append(f"{each.name}: {error}")
            continue
        idle += mbps <= 0
        sent_mbps[each.sender.index] += mbps
        received_mbps[each.receiver.index] += mbps
    if errors:
        raise ToolError(f"{len(errors)} of {len(run.connections)} connections failed; {errors[0]}")
    if idle > _IDLE_MAX * len(run.connections):
        raise ToolError(f"{idle} of {len(run.connections)} connections moved nothing in {step.measured_s} s")
    if sum(sent_mbps) > run.wire_mbps * (1 + _CLOCKS_WITHIN):
        raise ToolError(
            f"the programs report {sum(sent_mbps):.1f} Mbps together, but {run.wire_mbps:.1f} Mbps left the nodes: "
            "they did not all measure at the same time. Give the test a larger margin_s, or the links a lower rate"
        )
    cpu_s = sum(end.cpu_s for end in (*clients, *servers))
    names = tuple(node.name for node in nodes)
    moved = tuple(sent_mbps), tuple(received_mbps)
    return MeshReading(names, *moved, run.wire_mbps, run.start_s, idle, cpu_s, run.events)


def _output(end: str, finished: Finished) -> Output:
    output = Output(finished.stdout, finished.stderr, finished.exit_status)
    if finished.timed_out:
        raise ToolError(f"the {end} hung and was stopped ({finished.stopped_because}): {last_words(output)}")
    return output


def _samples(step: MeshStep, execution: Execution[MeshReading], circumstances: Circumstances) -> tuple[Sample, ...]:
    """Samples of all together and of every node; exactly one, without a value, if the step failed."""
    params: dict[str, ParamValue] = {
        "connections": step.connections,
        "parallel": step.parallel,
        "depth": step.depth,
        "measured_s": step.measured_s,
        "margin_s": step.margin_s,
    }

    def sample(value: Value | None, error: str | None = None) -> Sample:
        return sample_of(
            step,
            execution,
            circumstances,
            key=step.key,
            main_metric=MESH_METRIC,
            params=params,
            value=value,
            error=error,
        )

    reading = execution.reading
    if reading is None:
        return (sample(None, execution.error or NO_REASON),)
    params |= {"idle_connections": reading.idle_connections}
    params |= {"start_s": round(reading.start_s, 3), "cpu_s": round(reading.cpu_s, 3)}
    sent = reading.sent_mbps
    # A node that only receives is no slow sender, and one that only sends no slow receiver.
    senders = [sent[at] for at in sorted({sender for batch in flows(step.test, step.nodes) for sender, _ in batch})]
    values = [
        Value(*MESH_METRIC, "total", sum(sent)),
        Value("wire_mbps", "Mbps", "total", reading.wire_mbps),
        *(
            Value("node_throughput_mbps", "Mbps", statistic, value)
            for statistic, value in (
                ("mean", fmean(senders)),
                ("min", min(senders)),
                ("max", max(senders)),
            )
        ),
        *(
            Value(metric, "Mbps", node, value)
            for metric, by_node in (("sent_mbps", sent), ("received_mbps", reading.received_mbps))
            for node, value in zip(reading.nodes, by_node, strict=True)
        ),
        *network_events.values(reading.events, reading.nodes),
    ]
    return tuple(sample(value) for value in values)
