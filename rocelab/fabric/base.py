"""What every fabric and every launcher is: the types the rest of rocelab is written against.

A fabric is where a study runs: nodes joined by links. A launcher starts programs on its nodes. Both can be
replaced by a fake (`rocelab.launch.fake`), so this file imports nothing and decides nothing about how a node
is made.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Protocol, Self, get_args

from rocelab.devices import DevicePort

#: The kinds of link, as study files and ``rocelab fabric up`` name them.
LinkKind = Literal["direct", "bridge", "two-level"]
LINK_KINDS: Final[tuple[LinkKind, ...]] = get_args(LinkKind)

#: How many bits of a node's addresses are those of its link's network, IPv4 and IPv6.
PREFIX_BITS: Final = 24
PREFIX6_BITS: Final = 64


class FabricError(Exception):
    """A fabric could not be built, found or entered. The text is for a person and says what to do."""


class LaunchError(Exception):
    """A program could not be started on a node, or its node went away. The text is for a person."""


@dataclass(frozen=True, slots=True)
class LinkProfile:
    """One kind of link between the nodes of a fabric; all profiles of a fabric exist at the same time.

    A `direct` link joins the first two nodes by a virtual cable; a `bridge` joins all through a
    switch. A `two-level` link has an access switch for every `nodes_per_switch` nodes and a spine
    switch that joins those. With `rate_mbps` (10^6 bit/s on the wire, Ethernet framing included)
    both directions of every cable of a node are shaped, with `uplink_rate_mbps` those between
    access and spine. `queue_bytes` is the buffer in front of a shaped cable and `burst_bytes` what
    may leave it at once; `switch_queue_bytes` is the buffer where it is a switch that sends. None
    takes the default that `docs/fabrics.md` explains.
    """

    id: str
    kind: LinkKind
    mtu_bytes: int = 1500
    rate_mbps: float | None = None
    queue_bytes: int | None = None
    burst_bytes: int | None = None
    switch_queue_bytes: int | None = None
    nodes_per_switch: int | None = None
    uplink_rate_mbps: float | None = None
    gso_max_bytes: int | None = None
    """How much TCP hands to a cable at once: above 65536 it is BIG TCP. None: as the kernel has it."""
    loss_percent: float | None = None
    """Of all packets that nodes send, how many the switch at the end of their cable drops by chance. 0 drops none, and
    treats packets as other losses do. None: nothing is dropped, and what nodes send may come in pieces of 64 KiB."""
    ecn_percent: float | None = None
    """From this percentage of the rate of a switch's port on, packets that leave by it are marked "congestion
    experienced" if they say that they are ECN capable. None: none is marked."""
    switches: tuple[str, ...] = ()
    """The access switch of each node, where it is not `nodes_per_switch` that says so; empty: nothing is known."""

    def switch_of(self, node: int) -> str | None:
        """The name of the access switch of a node, by the index of that; None where it is not known."""
        if self.switches:
            return self.switches[node]
        return None if self.nodes_per_switch is None else f"switch{node // self.nodes_per_switch}"


@dataclass(frozen=True, slots=True)
class Node:
    """One node. The mappings are keyed by the ids of its links, in the order of the fabric's links."""

    name: str
    index: int
    addresses: Mapping[str, str]
    addresses6: Mapping[str, str]
    interfaces: Mapping[str, str]
    devices: Mapping[str, DevicePort] = field(default_factory=dict, kw_only=True)
    """The RDMA devices that are there without urxe."""
    #: The process that holds the node, as seen from where rocelab runs; 0 for a fake.
    pid: int


class Fabric(Protocol):
    """A set of nodes that exists until `close`, or until the process that made it ends, however it ends."""

    @property
    def name(self) -> str:
        """What people call it."""

    @property
    def nodes(self) -> tuple[Node, ...]:
        """In the order of their index."""

    @property
    def links(self) -> tuple[LinkProfile, ...]:
        """In the order they were asked for."""

    def dropped_packets(self, link: str) -> int | None:
        """How many packets a link has dropped so far because of its `loss_percent`; None where it has none.

        FabricError if the fabric is gone.
        """

    def close(self) -> None:
        """End every process of the fabric and remove it. Does nothing the second time."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class Entrance(Protocol):
    """A fabric whose nodes can be entered: passes a request and open files to the keeper of a node."""

    def node(self, name: str) -> Node:
        """The node of that name; FabricError if there is none."""

    def request(self, node: Node, message: Mapping[str, object], files: Sequence[int]) -> None:
        """Hand `message` and duplicates of the file descriptors `files` to the node; FabricError if it is gone."""


@dataclass(frozen=True, slots=True)
class Finished:
    """How a program ended.

    `exit_status` is negative for a signal (-9: killed), as in subprocess. CPU seconds are those of the program
    and everything it started.
    """

    exit_status: int
    stdout: str
    stderr: str
    wall_s: float
    cpu_user_s: float
    cpu_system_s: float
    timed_out: bool = False
    #: What rocelab itself did to the program and why (time limit, too much output); None if it
    #: ended by itself.
    stopped_because: str | None = field(default=None)

    @property
    def cpu_s(self) -> float:
        """User and system seconds together."""
        return self.cpu_user_s + self.cpu_system_s


class Running(Protocol):
    """A program that was started on a node."""

    @property
    def pid(self) -> int:
        """The program's pid as its node sees it."""

    def poll(self) -> Finished | None:
        """The result if the program has ended, else None. Never blocks."""

    def wait(self, timeout_s: float) -> Finished:
        """Wait for the end; after `timeout_s` seconds stop the program with everything it started.

        The result then has `timed_out` set and the output so far. May be called again: the result is kept.
        """

    def stop(self) -> Finished:
        """End the program with everything it started (SIGTERM, then SIGKILL) and return what it left."""

    def signal(self, number: int) -> None:
        """Send a signal to the program and what it started in its session; nothing if it has ended."""

    def output(self) -> tuple[str, str]:
        """Standard output and standard error so far."""


@dataclass(frozen=True, slots=True)
class RemoteShell:
    """What programs on one node may use as `ssh NODE COMMAND...` to start programs on others."""

    program: str
    """Takes the arguments that ssh takes; a path without spaces."""
    env: Mapping[str, str]
    """What it needs in its environment, and so the program that starts it."""
    folder: str | None = None
    """A folder that is there on all nodes, for programs to run in. None: the starting program's is."""
    job_step: tuple[str, ...] = ()
    """What starts an MPI program on all nodes in place of mpirun: srun with its options; empty: nothing does."""


class Launcher(Protocol):
    """Starts programs on the nodes of one fabric."""

    def start(
        self,
        node: Node,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cores: Collection[int] = (),
        log: Path | None = None,
    ) -> Running:
        """Start `argv` on `node` and return once it is executing.

        `env` is added to rocelab's own environment. `cores` pins the program to those. When the program has
        ended, its command line, output, exit status and CPU time are appended to the file `log`, so the two
        ends of one measurement may share a log. Raises LaunchError (for example: no such program).
        """

    def wait_until_listening(
        self,
        node: Node,
        running: Running,
        port: int,
        *,
        protocol: Literal["tcp", "udp"] = "tcp",
        timeout_s: float = 10.0,
    ) -> None:
        """Return as soon as `port` is open on `node`; LaunchError if `running` ends first or time runs out."""

    def is_listening(self, node: Node, port: int, *, protocol: Literal["tcp", "udp"] = "tcp") -> bool:
        """Whether `port` is open on `node` at this moment."""

    def free_ports(self, node: Node, count: int) -> Sequence[int]:
        """TCP ports on which nothing listens on `node`; others than it gave last, as a server may be slow to go."""

    def core(self, node: Node, link: str) -> int:
        """The core for a program that is alone on its node and talks over a link.

        Nodes of one machine share its cores, and have different ones as long as there are enough.
        """

    def own_cores(self, node: Node, among: Sequence[Node]) -> Sequence[int]:
        """What no other of the nodes `among` has of the cores; none where there are fewer cores than nodes."""

    def separate_cores(self, nodes: Sequence[Node], count: int) -> Sequence[Sequence[int]]:
        """For each of the nodes so many processors, none of which another of them has; LaunchError where they are few.

        The first processors of all nodes are on different cores as long as there are enough of those.
        """

    def sent_bytes(self, node: Node, interface: str) -> int:
        """What has left `interface` of `node` so far, in bytes of frames without preamble, check and gap."""

    def network_counters(self, node: Node, link: str) -> Mapping[str, int]:
        """Counters of what happened to packets of a link at `node`, as `rocelab.launch.network_counters` reads them.

        Those of protocols are of all connections of the node. Raises LaunchError where the node is gone.
        """

    def choose_congestion_control(self, nodes: Sequence[Node], link: str, control: str) -> None:
        """Give TCP connections made from now on over a link, at these nodes, this congestion control.

        `rocelab.peers.DEFAULT` is what the machine gives them. Raises LaunchError where that cannot be.
        """

    def change_interfaces(
        self, nodes: Sequence[Node], link: str, wanted: Sequence[Mapping[str, int]]
    ) -> list[Mapping[str, int]]:
        """Change how the nodes' interfaces of a link send and receive: for each node features and attributes by name.

        `rocelab.launch.interface` has the names. Returns what everything was before. Raises LaunchError where that
        cannot be; some of the nodes may have changed then.
        """

    def remote_shell(
        self, env: Mapping[str, str], cores: Mapping[str, Collection[int]] | None = None
    ) -> AbstractContextManager[RemoteShell]:
        """What programs on nodes may use in place of ssh; it works until the end of the block.

        What is started by it has `env` added to rocelab's own environment, is pinned to the `cores`
        that its node has by name there, and ends with the program that started it.
        """
