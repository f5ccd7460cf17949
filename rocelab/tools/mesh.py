"""Programs that load a full mesh: every node sends to every other at the same time, one program pair each way.

A program of a mesh measures in the middle of its run: it leaves out `margin_s` at the beginning and at the end. As
long as all programs begin within the margin, whatever is measured is measured while all of them send, and the
throughputs of the connections may be added up.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from rocelab.devices import DevicePort, UrxeTransport
from rocelab.tools import sock
from rocelab.tools.base import Executable, Output, ToolError, check_exit, last_words
from rocelab.tools.perftest import numbers_of, verbs_command, verbs_executables

#: The value that a mesh is about, summed over its nodes; also the metric of a sample that failed.
MESH_METRIC = ("throughput_mbps", "Mbps")
#: Packets say then that they are not ECN capable, so no switch marks them.
_WITHOUT_DCQCN = ("env", "URXE_DCQCN=off")
_MBPS = 1e6
_MIB = 1 << 20
#: perftest prints MiB/s with two decimals.
_EXACT_FROM_MIB_PER_S = 1.0
#: An interval of iperf3 belongs to what is measured if it lies within it up to this.
_INTERVAL_SLACK_S = 0.25


@dataclass(frozen=True, slots=True)
class MeshRequest:
    """One of the connections of a mesh, as a method needs it."""

    size_bytes: int
    parallel: int
    """Queue pairs or streams of the connection."""
    depth: int
    """Messages that a queue pair may have under way at once; TCP decides that by itself."""
    measured_s: int
    margin_s: int
    """Left out before and after what is measured."""
    traffic_class: int
    server_address: str
    client_interface: str
    server_interface: str
    port: int
    client_device: DevicePort | None = None
    server_device: DevicePort | None = None
    """The RDMA devices that are there without urxe."""

    @property
    def duration_s(self) -> int:
        """How long the program sends."""
        return self.measured_s + 2 * self.margin_s


class MeshMethod(Protocol):
    """How one program loads a connection of a mesh."""

    @property
    def tool(self) -> str:
        """The program's name, as samples state it."""

    @property
    def executables(self) -> tuple[Executable, ...]:
        """Everything it needs on both ends."""

    @property
    def nic(self) -> Executable | None:
        """What gives the programs their device in userspace, where they have one."""

    @property
    def has_queue_pairs(self) -> bool:
        """Whether what is parallel in it are queue pairs."""

    @property
    def pair_s(self) -> float:
        """About what starting and ending a pair costs a core, for planning only."""

    @property
    def head_start_s(self) -> float:
        """How long the client sleeps once it is connected, before it begins: then it is held. 0: not at all."""

    def server(self, request: MeshRequest) -> Sequence[str]:
        """The command line of the end that is started first and listens on `request.port`; ends after one client."""

    def client(self, request: MeshRequest) -> Sequence[str]:
        """The command line of the end that connects and sends."""

    def read_mbps(self, request: MeshRequest, client: Output, server: Output) -> float:
        """What went through the connection in the middle of the run, 0 if nothing; ToolError if it was no good run."""


@dataclass(frozen=True)
class PerftestMesh:
    """`ib_write_bw -q QPS -t DEPTH -D SECONDS -f MARGIN --tclass CLASS`, which leaves its margins out by itself."""

    runner: Executable | None
    """What gives the program its device: `urxe run --` in front of it. None: the device is there."""
    rdma_cm: bool = False
    transport: UrxeTransport = "roce-v2"
    """What urxe's device speaks."""
    dcqcn: bool = True
    """Whether urxe reacts to marks of switches; a device that is there does what it is set to."""
    operation: Literal["write", "send"] = "write"
    has_queue_pairs: Literal[True] = True
    pair_s: float = 0.15

    @property
    def tool(self) -> str:
        """Such as ``ib_write_bw``."""
        return f"ib_{self.operation}_bw"

    @property
    def head_start_s(self) -> float:
        """ib_write_bw's client sleeps for a second between connecting and saying its first word."""
        return 1.0 if self.operation == "write" else 0.0

    @property
    def executables(self) -> tuple[Executable, ...]:
        """The program and what gives it its device."""
        return verbs_executables(self.tool, self.runner)

    @property
    def nic(self) -> Executable | None:
        """Urxe, where it runs the program."""
        return self.runner

    def server(self, request: MeshRequest) -> Sequence[str]:
        """Serves one client."""
        return self._command(request, request.server_interface, request.server_device)

    def client(self, request: MeshRequest) -> Sequence[str]:
        """The same options, and the server's address."""
        command = self._command(request, request.client_interface, request.client_device)
        return [*command, request.server_address]

    def _command(self, request: MeshRequest, interface: str, device: DevicePort | None) -> list[str]:
        return [
            *(() if self.dcqcn else _WITHOUT_DCQCN),
            *verbs_command(self.tool, self.runner, interface, device, 0, transport=self.transport),
            *("-F", "-p", str(request.port), *(["-R"] if self.rdma_cm else [])),
            *("-q", str(request.parallel), "-s", str(request.size_bytes), f"--tclass={request.traffic_class}"),
            *("-t", str(request.depth)),
            *("-D", str(request.duration_s), "-f", str(request.margin_s)),
        ]

    def read_mbps(self, request: MeshRequest, client: Output, server: Output) -> float:
        """The client's one line of numbers: its bandwidth, or that of its messages where two decimals are too few.

        Two signals mark where what is measured begins and ends. Where the cores are busy, perftest now and then misses
        one, and prints the messages between them with a bandwidth of 0: then, too, their number tells.
        """
        check_exit(client, server)
        messages, *columns = numbers_of(self.tool, request.size_bytes, client)
        if len(columns) != 3:
            raise ToolError(f"{self.tool} printed {len(columns)} columns of bandwidth instead of 3")
        mib_per_s = columns[1]
        if mib_per_s >= _EXACT_FROM_MIB_PER_S:
            return mib_per_s * _MIB * 8 / _MBPS
        return messages * request.size_bytes * 8 / request.measured_s / _MBPS


@dataclass(frozen=True)
class Iperf3Mesh:
    """`iperf3 -P STREAMS -t SECONDS`. Its receiver tells what arrived each second, so the margins can be left out."""

    tool: str = "iperf3"
    has_queue_pairs: Literal[False] = False
    pair_s: float = 0.03
    head_start_s: float = 0.0

    @property
    def executables(self) -> tuple[Executable, ...]:
        """iperf3 itself."""
        return (Executable("iperf3", package="iperf3"),)

    @property
    def nic(self) -> None:
        """It uses the kernel's sockets."""
        return

    def server(self, request: MeshRequest) -> Sequence[str]:
        """Serves one client."""
        return ["iperf3", "--server", "--one-off", "--port", str(request.port), "--interval", "1", "--json"]

    def client(self, request: MeshRequest) -> Sequence[str]:
        """Sends for as long as it is told."""
        return [
            *("iperf3", "--client", request.server_address, "--port", str(request.port), "--json"),
            *("--length", str(request.size_bytes), "--parallel", str(request.parallel)),
            *("--tos", str(request.traffic_class), "--time", str(request.duration_s)),
        ]

    def read_mbps(self, request: MeshRequest, client: Output, server: Output) -> float:
        """The receiver's intervals that lie between the margins."""
        check_exit(client, server)
        try:
            report: dict[str, Any] = json.loads(server.stdout)
            sums = [interval["sum"] for interval in report["intervals"]]
            first_s, last_s = request.margin_s - _INTERVAL_SLACK_S, request.duration_s - request.margin_s
            inside = [each for each in sums if each["start"] >= first_s and each["end"] <= last_s + _INTERVAL_SLACK_S]
            received_bytes = sum(int(each["bytes"]) for each in inside)
            seconds = sum(float(each["seconds"]) for each in inside)
        except ValueError:
            raise ToolError(f"the receiver of iperf3 printed no JSON: {last_words(server)}") from None
        except (KeyError, TypeError) as error:
            raise ToolError(f"iperf3's report lacks {error}") from error
        if seconds < request.measured_s / 2:
            raise ToolError(f"iperf3 reports {seconds:g} s between the margins instead of {request.measured_s}")
        return received_bytes * 8 / seconds / _MBPS


@dataclass(frozen=True)
class SockMesh:
    """`rocelab-sock --seconds SECONDS --margin MARGIN`, whose receiver leaves the margins out by itself."""

    waiting: Literal["blocking", "busy-poll", "spin"]
    tool: str = "rocelab-sock"
    has_queue_pairs: Literal[False] = False
    pair_s: float = 0.02
    head_start_s: float = 0.0

    @property
    def executables(self) -> tuple[Executable, ...]:
        """rocelab-sock itself."""
        return (sock.program(),)

    @property
    def nic(self) -> Executable | None:
        """The kernel has the interface."""
        return None

    def server(self, request: MeshRequest) -> Sequence[str]:
        """Serves one client."""
        return [sock.program().name, "server", "--port", str(request.port)]

    def client(self, request: MeshRequest) -> Sequence[str]:
        """Brings the whole job, also the server's part."""
        return [
            *(sock.program().name, "client", request.server_address, "--port", str(request.port)),
            *("--test", "bandwidth", "--waiting", self.waiting, "--size", str(request.size_bytes)),
            *("--seconds", str(request.measured_s), "--margin", str(request.margin_s)),
        ]

    def read_mbps(self, request: MeshRequest, client: Output, server: Output) -> float:
        """What the receiver got between the margins. Both ends have compared the content of some messages before."""
        check_exit(client, server)
        try:
            report: dict[str, Any] = json.loads(client.stdout)
            measured_s, mbps = float(report["server"]["elapsed_s"]), float(report["bandwidth_mbps"])
        except ValueError:
            raise ToolError(f"rocelab-sock printed no report: {last_words(client)}") from None
        except (KeyError, TypeError) as error:
            raise ToolError(f"rocelab-sock's report lacks {error}") from error
        if measured_s < request.measured_s / 2:
            raise ToolError(
                f"rocelab-sock measured {measured_s:g} s between the margins instead of {request.measured_s}"
            )
        return mbps
