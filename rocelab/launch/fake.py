"""A fabric and a launcher that start nothing: for tests of whatever runs programs on nodes.

    launcher = FakeLauncher(lambda start: Outcome(stdout="latency 1.5"))
    running = launcher.start(fabric.nodes[0], ["ib_send_lat"])
    launcher.starts            # every start asked for, in order

The answer function sees each start and says how that program ends, so a test plays a hang, a crash, a missing
tool (raise LaunchError) or a good run.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from rocelab.fabric.base import Finished, LaunchError, LinkProfile, Node, RemoteShell


@dataclass(frozen=True, slots=True)
class Start:
    """One program that a test subject asked for."""

    node: Node
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cores: Collection[int]
    log: Path | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a fake program ends. `hangs`: only when it is stopped."""

    exit_status: int = 0
    stdout: str = ""
    stderr: str = ""
    wall_s: float = 0.1
    cpu_user_s: float = 0.05
    cpu_system_s: float = 0.05
    hangs: bool = False
    listens: bool = True


@dataclass
class FakeFabric:
    """Nodes without processes. Notes whether it was closed."""

    links: tuple[LinkProfile, ...]
    node_count: int = 2
    name: str = "fake"
    closed: bool = False
    dropped: int = 0
    """How many packets each link that loses any has lost so far."""

    def dropped_packets(self, link: str) -> int | None:
        """As many as `dropped` says."""
        return self.dropped if any(each.id == link and each.loss_percent for each in self.links) else None

    @property
    def nodes(self) -> tuple[Node, ...]:
        """As many as `node_count`, with addresses like those of an emulated fabric."""
        return tuple(
            Node(
                name=f"node{index}",
                index=index,
                addresses={link.id: f"10.80.{at}.{index + 1}" for at, link in enumerate(self.links)},
                addresses6={link.id: f"fd52:6f63:{at + 1:x}::{index + 1:x}" for at, link in enumerate(self.links)},
                interfaces={link.id: f"eth{at}" for at, link in enumerate(self.links)},
                pid=0,
            )
            for index in range(self.node_count)
        )

    def close(self) -> None:
        """Note it."""
        self.closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class FakeRunning:
    """A program that has already decided how it ends."""

    def __init__(self, start: Start, outcome: Outcome) -> None:
        self.start = start
        self.outcome = outcome
        self.pid = 1000
        self.stopped = False
        self.signals: list[int] = []
        self.finished: Finished | None = None

    def poll(self) -> Finished | None:
        """The result, unless it hangs."""
        if self.finished is None and not self.outcome.hangs:
            self.finished = self._finish(timed_out=False)
        return self.finished

    def wait(self, timeout_s: float) -> Finished:
        """The result; timed out if it hangs."""
        if self.finished is None:
            self.finished = self._finish(timed_out=self.outcome.hangs, limit_s=timeout_s)
        return self.finished

    def stop(self) -> Finished:
        """Note it and end."""
        self.stopped = True
        if self.finished is None:
            self.finished = self._finish(timed_out=False)
        return self.finished

    def signal(self, number: int) -> None:
        """Note it."""
        self.signals.append(number)

    def output(self) -> tuple[str, str]:
        """All of it, from the beginning."""
        return self.outcome.stdout, self.outcome.stderr

    def _finish(self, *, timed_out: bool, limit_s: float | None = None) -> Finished:
        outcome = self.outcome
        because = f"time limit of {limit_s:g} s" if timed_out else "stop was asked for" if self.stopped else None
        finished = Finished(
            exit_status=-15 if outcome.hangs else outcome.exit_status,
            stdout=outcome.stdout,
            stderr=outcome.stderr,
            wall_s=limit_s if timed_out and limit_s is not None else outcome.wall_s,
            cpu_user_s=outcome.cpu_user_s,
            cpu_system_s=outcome.cpu_system_s,
            timed_out=timed_out,
            stopped_because=because,
        )
        if self.start.log is not None:
            with self.start.log.open("a", encoding="utf-8") as log:
                log.write(f"{self.start.node.name}$ {' '.join(self.start.argv)}\n{outcome.stdout}{outcome.stderr}")
        return finished


@dataclass
class FakeLauncher:
    """Answers every start with what `answer` says; keeps the starts in order and what is still running."""

    answer: Callable[[Start], Outcome] = field(default=lambda _: Outcome())
    starts: list[Start] = field(default_factory=list)
    running: list[FakeRunning] = field(default_factory=list)
    #: Bytes that left an interface, at each time of asking: far more than any program reports.
    shells: list[tuple[Mapping[str, str], Mapping[str, Collection[int]]]] = field(default_factory=list)
    """Environment and cores of every remote shell that was asked for."""
    controls: list[tuple[str, str, int]] = field(default_factory=list)
    """Every congestion control that was chosen: link, name, on how many nodes."""
    refused_control: str = ""
    interfaces: dict[tuple[str, str], dict[str, int]] = field(default_factory=dict)
    """What was changed of an interface, by link and node."""
    refused_interface: str = ""
    """A name that no interface lets change."""
    core_count: int = 4
    ports: Iterator[int] = field(default_factory=lambda: itertools.count(18_000))
    events: Mapping[str, Iterator[Mapping[str, int]]] = field(default_factory=dict)
    """What counters of the network say at each time of asking, by node; else nothing."""
    counters: Iterator[int] = field(default_factory=lambda: itertools.count(0, 10**15))

    def start(
        self,
        node: Node,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cores: Collection[int] = (),
        log: Path | None = None,
    ) -> FakeRunning:
        """Ask `answer`; what it raises is raised."""
        start = Start(node, tuple(argv), dict(env or {}), cores, log)
        self.starts.append(start)
        running = FakeRunning(start, self.answer(start))
        self.running.append(running)
        return running

    def wait_until_listening(
        self,
        node: Node,
        running: object,
        port: int,
        *,
        protocol: Literal["tcp", "udp"] = "tcp",
        timeout_s: float = 10.0,
    ) -> None:
        """Return at once, or LaunchError if the outcome says that nothing listens."""
        if isinstance(running, FakeRunning) and not running.outcome.listens:
            raise LaunchError(f"{node.name}: nothing listened on {protocol} port {port} within {timeout_s:g} s")

    def is_listening(self, node: Node, port: int, *, protocol: Literal["tcp", "udp"] = "tcp") -> bool:  # noqa: ARG002
        """Never: a server that takes one client has had its client."""
        return False

    def free_ports(self, node: Node, count: int) -> Sequence[int]:  # noqa: ARG002
        """The next ones."""
        return [next(self.ports) for _ in range(count)]

    def core(self, node: Node, link: str) -> int:  # noqa: ARG002
        """The cores take turns."""
        return node.index % self.core_count

    def own_cores(self, node: Node, among: Sequence[Node]) -> Sequence[int]:
        """The same number for each node."""
        each, at = self.core_count // len(among), among.index(node)
        return range(at * each, (at + 1) * each)

    def separate_cores(self, nodes: Sequence[Node], count: int) -> Sequence[Sequence[int]]:
        """They take turns."""
        if count * len(nodes) > self.core_count:
            raise LaunchError(f"{self.core_count} processors are too few")
        return [range(at, count * len(nodes), len(nodes)) for at in range(len(nodes))]

    def sent_bytes(self, node: Node, interface: str) -> int:  # noqa: ARG002
        """What `counters` says next."""
        return next(self.counters)

    def network_counters(self, node: Node, link: str) -> Mapping[str, int]:  # noqa: ARG002
        """What `events` says next of the node."""
        return next(self.events.get(node.name, itertools.repeat({})))

    def choose_congestion_control(self, nodes: Sequence[Node], link: str, control: str) -> None:
        """Note it, or LaunchError if it is the one that the kernel refuses."""
        if control == self.refused_control:
            raise LaunchError(f"{nodes[0].name}: TCP over {link} could not be given the congestion control {control!r}")
        self.controls.append((link, control, len(nodes)))

    def change_interfaces(
        self, nodes: Sequence[Node], link: str, wanted: Sequence[Mapping[str, int]]
    ) -> list[Mapping[str, int]]:
        """Note it, or LaunchError at the last node if something of it is refused."""
        before: list[Mapping[str, int]] = []
        for node, changes in zip(nodes, wanted, strict=True):
            if node is nodes[-1] and self.refused_interface in changes:
                raise LaunchError(f"{node.name}: how {link} receives cannot be changed: {self.refused_interface}")
            held = self.interfaces.setdefault((link, node.name), {"tx-tcp*": 1, "rx-gro": 0})
            before.append(dict(held))
            held.update(changes)
        return before

    def remote_shell(
        self, env: Mapping[str, str], cores: Mapping[str, Collection[int]] | None = None
    ) -> AbstractContextManager[RemoteShell]:
        """A program that is not there: nothing of ours starts it."""
        self.shells.append((env, cores or {}))
        return nullcontext(RemoteShell("enter", {"ENTER": "1"}))
