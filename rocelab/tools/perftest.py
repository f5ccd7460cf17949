"""perftest: Debian's own ib_send_lat, ib_write_bw and so on, one message size a run.

Why not ``-a``, which runs all sizes in one process: it starts at 2 bytes, goes on to 8 MiB, and
uses the same number of iterations for all of them. 4 MiB at 1 Gbps takes 10,000 times as long as 64
B, and the sizes of one interconnect could not be interleaved with those of another.

perftest finds out how fast the cycle counter runs by watching it for 0.22 s, for every size: bandwidth tests once, at
the end, latency tests at the beginning and at the end. The last can be spared by letting them print cycles (``-C``):
then the rate is measured once a run and not a thousand times. Nothing can be done meanwhile: both ends keep their core.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from rocelab.devices import ROCE_V1_DISTANCE, DevicePort, UrxeTransport
from rocelab.tools.base import (
    DisturbedError,
    Executable,
    Output,
    Reading,
    Request,
    Test,
    ToolError,
    Value,
    check_exit,
    last_words,
)

Operation = Literal["send", "write", "read"]

_NUMBERS = re.compile(r"^\s*(\d+)((?:\s+-?(?:\d+(?:\.\d+)?|nan|inf))+)\s*$", re.MULTILINE)
_MIB: Final = 1 << 20
_MBPS: Final = 1e6
#: Both columns are printed with a fixed number of digits: MiB/s is the exact one from here on,
#: messages/s below.
_EXACT_FROM_BYTES: Final = 4096
#: Two decimals of MiB/s and six of millions of messages a second still agree this well in the
#: middle.
_COLUMNS_AGREE_WITHIN: Final = 0.05
_COLUMNS_COMPARED: Final = range(1024, 65537)
#: What it says on stderr when its samples of cycle counter and clock are on no line. All its times
#: are made of a frequency of 0 then.
_NO_FREQUENCY: Final = "Correlation coefficient"
_CALIBRATION_S: Final = 0.22
#: What `urxe run` is told for a transport.
_URXE_OPTIONS: Final[Mapping[UrxeTransport, tuple[str, ...]]] = {
    "roce-v2": (),
    "roce-v1": ("--roce-v1",),
    "iwarp": ("--transport", "iwarp"),
}
_SETPRIV: Final = Executable("setpriv", package="util-linux")
#: What no process of it may have, its child does not get, root or not.
_WITHOUT_NET_RAW: Final = (_SETPRIV.name, "--bounding-set", "-net_raw", "--inh-caps", "-net_raw")


@dataclass(frozen=True)
class Perftest:
    """One perftest program on the RDMA device of the step's network interface."""

    operation: Operation
    test: Test
    runner: Executable | None
    """What gives the program its device: `urxe run --` in front of it. None: the device is there."""
    rdma_cm: bool = False
    """Connect by RDMA-CM (`-R`), as iWARP has to."""
    events: bool = False
    """Sleep until a completion comes (`-e`) instead of polling for it."""
    path_mtu_bytes: int | None = None
    """Path MTU (`-m`); None: the largest that the link takes."""
    queue_pairs: int = 1
    """How many connections share the messages (`-q`)."""
    gid_index: int = 0
    """Which address of the interface is used (`-x`): 0 is IPv4 on the nodes of an emulated fabric, 1 is IPv6."""
    transport: UrxeTransport = "roce-v2"
    """What urxe's device speaks; one that is there speaks what it does."""
    without_net_raw: bool = False
    """Give up the capability CAP_NET_RAW first, as a program of an ordinary user has none."""
    cycles_per_us: float | None = None
    """Rate of the counter that perftest reads; None: perftest finds out once more, which takes 0.22 s a step."""
    messages_min: int = 5
    size_max_bytes: int | None = None
    message_us: float = 2.5
    cpu_from: Literal["processes"] = "processes"
    server_ends: bool = True

    @property
    def tool(self) -> str:
        """Such as ``ib_send_lat``."""
        return f"ib_{self.operation}_{'lat' if self.test == 'latency' else 'bw'}"

    @property
    def executables(self) -> tuple[Executable, ...]:
        """The program and what gives it its device."""
        needed = verbs_executables(self.tool, self.runner)
        return (*needed, _SETPRIV) if self.without_net_raw else needed

    @property
    def head_start_s(self) -> float:
        """ib_write_bw's client sleeps for a second between connecting and saying its first word."""
        return 1.0 if self.operation == "write" and self.test != "latency" else 0.0

    @property
    def overhead_s(self) -> float:
        """Start, connection set-up, and finding the rate of the cycle counter once or twice."""
        return 0.05 + (2 if self.test == "latency" and not self._prints_cycles else 1) * _CALIBRATION_S

    @property
    def _prints_cycles(self) -> bool:
        return self.test == "latency" and self.cycles_per_us is not None

    def server(self, request: Request) -> Sequence[str]:
        """Serves one client."""
        return self._command(request, request.server_interface, request.server_device)

    def client(self, request: Request) -> Sequence[str]:
        """The same options, and the server's address."""
        command = self._command(request, request.client_interface, request.client_device)
        return [*command, request.server_address]

    def _messages_each(self, request: Request) -> int:
        """`-n` counts the messages of each queue pair."""
        return max(self.messages_min, request.messages // self.queue_pairs)

    def _command(self, request: Request, interface: str, device: DevicePort | None) -> list[str]:
        options = {
            "latency": ["-C"] if self._prints_cycles else [],
            # The peak is found by comparing every pair of messages: seconds of CPU time for a
            # number that is not used.
            "bandwidth": ["--noPeak"],
            "bidirectional-bandwidth": ["--noPeak", "--bidirectional"],
            "cpu-use": ["--noPeak"],
        }[self.test]
        if self.events:
            options.append("--events")
        if self.path_mtu_bytes is not None:
            options += ["-m", str(self.path_mtu_bytes)]
        if self.rdma_cm:
            options.append("-R")
        if self.queue_pairs > 1:
            options += ["-q", str(self.queue_pairs)]
        return [
            *(_WITHOUT_NET_RAW if self.without_net_raw else ()),
            *verbs_command(self.tool, self.runner, interface, device, self.gid_index, transport=self.transport),
            *("-F", "-p", str(request.port)),
            *("-s", str(request.size_bytes), "-n", str(self._messages_each(request))),
            *options,
        ]

    def read(self, request: Request, client: Output, server: Output) -> Reading:
        """The client's one line of numbers."""
        check_exit(client, server)
        if _NO_FREQUENCY in client.stderr:
            why = "other work kept it from its clock, or the clock was set"
            raise DisturbedError(f"{self.tool} could not tell the frequency of the processor: {why}; measure again")
        numbers = numbers_of(self.tool, request.size_bytes, client)
        messages = self._messages_each(request) * self.queue_pairs
        if int(numbers[0]) != messages:
            raise ToolError(f"{self.tool} reports {numbers[0]:g} iterations, {messages} were asked for")
        if self.test == "latency":
            return self._read_latency(request, numbers[1:])
        return self._read_bandwidth(request, numbers[1:], client)

    def _read_latency(self, request: Request, columns: Sequence[float]) -> Reading:
        names = ("min", "max", "median", "mean", "stdev", "p99", "p99.9")
        if len(columns) != len(names):
            raise ToolError(f"{self.tool} printed {len(columns)} latencies instead of {len(names)}")
        per_us = self.cycles_per_us if self._prints_cycles and self.cycles_per_us else 1.0
        by_name = {name: column / per_us for name, column in zip(names, columns, strict=True)}
        if by_name["min"] <= 0:
            raise ToolError(f"{self.tool} reports a latency of {by_name['min']:g} us")
        values = tuple(Value("latency_us", "us", name, by_name[name]) for name in ("median", "mean", "p99", "min"))
        # A READ is a round trip by nature; SEND and WRITE are reported as half of one.
        ways = 1 if self.operation == "read" else 2
        active_s = by_name["mean"] * ways * request.messages / 1e6
        return Reading(values, ways * request.messages * request.size_bytes, active_s)

    def _read_bandwidth(self, request: Request, columns: Sequence[float], client: Output) -> Reading:
        if len(columns) != 3:
            raise ToolError(f"{self.tool} printed {len(columns)} columns of bandwidth instead of 3")
        size_bytes = request.size_bytes
        by_bytes = columns[1] * _MIB
        by_messages = columns[2] * 1e6 * size_bytes
        if size_bytes in _COLUMNS_COMPARED and abs(by_bytes - by_messages) > _COLUMNS_AGREE_WITHIN * by_bytes:
            raise ToolError(f"{self.tool} contradicts itself: {columns[1]} MiB/s and {columns[2]} million messages/s")
        bytes_per_s = by_bytes if size_bytes >= _EXACT_FROM_BYTES else by_messages
        if bytes_per_s <= 0:
            raise ToolError(f"{self.tool} reports a bandwidth of 0: {last_words(client)}")
        ways = 2 if self.test == "bidirectional-bandwidth" else 1
        moved_bytes = size_bytes * self._messages_each(request) * self.queue_pairs * ways
        values = (
            Value("bandwidth_mbps", "Mbps", "mean", bytes_per_s * 8 / _MBPS),
            Value("message_rate_per_s", "1/s", "mean", bytes_per_s / size_bytes),
        )
        return Reading(values, moved_bytes, moved_bytes / bytes_per_s)


def verbs_executables(tool: str, runner: Executable | None) -> tuple[Executable, ...]:
    """A program of perftest, and what gives it its device where that is not there."""
    program = Executable(tool, package="perftest")
    return (program,) if runner is None else (program, runner)


def verbs_command(
    tool: str,
    runner: Executable | None,
    interface: str,
    device: DevicePort | None,
    gid_index: int,
    *,
    transport: UrxeTransport = "roce-v2",
) -> list[str]:
    """How a program of perftest begins: with urxe's device of an interface, or with one that is there.

    `gid_index` and `transport` are for urxe's. Index 0 is the interface's IPv4 address for RoCE; for iWARP it is the
    one that there is.
    """
    if runner is not None:
        index = gid_index + ROCE_V1_DISTANCE if transport == "roce-v1" else gid_index
        run = _URXE_OPTIONS[transport]
        return [runner.name, "run", *run, "--", tool, "-d", f"urxe_{interface}", "-x", str(index)]
    if device is None:
        raise ToolError(f"there is no RDMA device on {interface}")
    address = [] if device.gid_index is None else ["-x", str(device.gid_index)]
    return [tool, "-d", device.device, "-i", str(device.number), *address]


def numbers_of(tool: str, size_bytes: int, output: Output) -> list[float]:
    """The columns that follow the size in the line for that size: how many messages, then what was measured."""
    for found in _NUMBERS.finditer(output.stdout):
        if int(found[1]) == size_bytes:
            return [float(number) for number in found[2].split()]
    raise ToolError(f"{tool} printed no line for {size_bytes} bytes: {last_words(output)}")
