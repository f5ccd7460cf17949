"""The interconnects that can be compared: which methods each has, by test and variant. Data, not code paths."""

from __future__ import annotations

import dataclasses
import functools
import json
import subprocess
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rocelab.devices import UrxeTransport
from rocelab.tools import sock
from rocelab.tools.base import CPU_TEST, TESTS, Executable, Method, Test, own_program, package_version, printed_version
from rocelab.tools.beside import Busy
from rocelab.tools.iperf3 import Iperf3
from rocelab.tools.loaded import Loaded
from rocelab.tools.mesh import Iperf3Mesh, MeshMethod, PerftestMesh, SockMesh
from rocelab.tools.perftest import Operation, Perftest
from rocelab.tools.qperf import QperfLatency
from rocelab.tools.sock import Sock

_OPERATIONS: tuple[Operation, ...] = ("send", "write", "read")
#: Those that are measured under other conditions as well.
_CONDITIONED: tuple[Operation, ...] = ("send", "write")
#: Below 4096, which a link of MTU 9000 takes.
_SMALLER_PATH_MTUS = (1024, 2048)


@dataclass(frozen=True)
class Interconnect:
    """One way for two programs to talk."""

    id: str
    title: str
    methods: Mapping[tuple[Test, str], Method]
    meshes: Mapping[str, MeshMethod] = field(default_factory=dict)
    """The programs that load a full mesh, by variant."""
    side_by_side: Mapping[str, MeshMethod] = field(default_factory=dict)
    """The programs that run side by side between two nodes, by variant."""

    def variants(self, test: str) -> tuple[str, ...]:
        """The variants that this interconnect has for a test."""
        return tuple(variant for of_test, variant in self.methods if of_test == test)


def _tcp() -> Interconnect:
    methods: dict[tuple[Test, str], Method] = {
        ("latency", "blocking"): Sock("latency", "blocking"),
        ("latency", "busy-poll"): Sock("latency", "busy-poll"),
        **{(test, "zero-copy"): Sock(test, "blocking", zero_copy=True) for test in TESTS},
        **{(test, "busy-poll-zero-copy"): Sock(test, "busy-poll", zero_copy=True) for test in TESTS},
        **{(test, "spin"): Sock(test, "spin") for test in TESTS},
        **{(test, "kernel-poll"): Sock(test, "blocking", kernel_poll="poll") for test in TESTS},
        **{(test, "kernel-prefer"): Sock(test, "blocking", kernel_poll="prefer") for test in TESTS},
        **{(test, "busy-poll-kernel-prefer"): Sock(test, "busy-poll", kernel_poll="prefer") for test in TESTS},
        **{
            (test, "kernel-prefer-zero-copy"): Sock(test, "blocking", zero_copy=True, kernel_poll="prefer")
            for test in TESTS
        },
        ("latency", "blocking-qperf"): QperfLatency(),
        ("latency", "blocking-loaded"): Loaded(Sock("latency", "blocking"), load=Sock("bandwidth", "blocking")),
        ("latency", "spin-loaded"): Loaded(Sock("latency", "spin"), load=Sock("bandwidth", "blocking")),
        ("bandwidth", "blocking"): Sock("bandwidth", "blocking"),
        ("bandwidth", "busy-poll"): Sock("bandwidth", "busy-poll"),
        ("bandwidth", "no-delay"): Sock("bandwidth", "blocking", no_delay=True),
        ("bandwidth", "blocking-iperf3"): Iperf3("bandwidth"),
        ("bidirectional-bandwidth", "blocking"): Sock("bidirectional-bandwidth", "blocking"),
        ("bidirectional-bandwidth", "busy-poll"): Sock("bidirectional-bandwidth", "busy-poll"),
        ("bidirectional-bandwidth", "blocking-iperf3"): Iperf3("bidirectional-bandwidth"),
        ("cpu-use", "blocking"): Sock("cpu-use", "blocking"),
        ("cpu-use", "busy-poll"): Sock("cpu-use", "busy-poll"),
    }
    ways = ("blocking", "busy-poll", "spin", "kernel-prefer")
    # Of small messages iperf3 sends a fraction of what a plain loop does (docs/tools.md).
    side_by_side: dict[str, MeshMethod] = {
        "blocking": SockMesh("blocking"),
        "busy-poll": SockMesh("busy-poll"),
        "spin": SockMesh("spin"),
    }
    meshes = {"blocking": Iperf3Mesh()}
    return Interconnect("tcp", "TCP sockets", methods | _busy(methods, ways), meshes, side_by_side)


def _udp() -> Interconnect:
    """What the machine can do without any protocol: the floor under Soft RoCE."""
    methods = {(test, "busy-poll"): Sock(test, "busy-poll", protocol="udp", size_max_bytes=65507) for test in TESTS}
    return Interconnect("udp", "UDP sockets", methods)


def _soft_roce() -> Interconnect:
    made = _verbs("soft-roce", "Soft RoCE (urxe)", urxe())
    return dataclasses.replace(made, methods={**made.methods, **_restricted(made.methods)})


def _soft_iwarp() -> Interconnect:
    """The same device over TCP connections, which only RDMA-CM makes."""
    return _verbs("soft-iwarp", "iWARP (urxe)", urxe(), rdma_cm=True, transport="iwarp")


def _verbs(
    name: str, title: str, runner: Executable | None, *, rdma_cm: bool = False, transport: UrxeTransport = "roce-v2"
) -> Interconnect:
    """What perftest measures over urxe's devices, or over those that are there."""
    rate = cycles_per_us()

    def program(operation: Operation, test: Test) -> Perftest:
        return Perftest(operation, test, runner, rdma_cm, transport=transport, cycles_per_us=rate)

    methods: dict[tuple[Test, str], Method] = {
        (test, operation): program(operation, test) for test in TESTS for operation in _OPERATIONS
    }
    # iWARP has no streams by events: where a SEND is complete before the peer has it, ib_send_bw
    # sleeps for a completion when what it needs is a credit, and now and then sleeps for ever.
    for test in TESTS if not rdma_cm else ("latency",):
        methods[test, "send-events"] = dataclasses.replace(program("send", test), events=True)
    if not rdma_cm:
        methods["latency", "send-events-loaded"] = Loaded(
            methods["latency", "send-events"], load=dataclasses.replace(program("send", "bandwidth"), events=True)
        )
    # With RDMA-CM it is not the program that chooses the path MTU.
    for mtu_bytes in () if rdma_cm else _SMALLER_PATH_MTUS:
        methods["bandwidth", f"send-mtu{mtu_bytes}"] = dataclasses.replace(
            program("send", "bandwidth"), path_mtu_bytes=mtu_bytes
        )
    methods["bandwidth", "write-200qp"] = dataclasses.replace(program("write", "bandwidth"), queue_pairs=200)
    mesh = PerftestMesh(runner, rdma_cm, transport)
    meshes: dict[str, MeshMethod] = {"write": mesh}
    side_by_side: dict[str, MeshMethod] = {"write": mesh}
    # With RDMA-CM no program was run for some seconds but ib_write_bw.
    if not rdma_cm:
        side_by_side["send"] = dataclasses.replace(mesh, operation="send")
    # iWARP's packets are those of TCP.
    if runner is not None and transport != "iwarp":
        meshes["write-without-dcqcn"] = dataclasses.replace(mesh, dcqcn=False)
    return Interconnect(name, title, methods | _busy(methods, _CONDITIONED), meshes, side_by_side)


def _restricted(methods: Mapping[tuple[Test, str], Method]) -> dict[tuple[Test, str], Method]:
    """Soft RoCE over IPv6, over RoCE v1, and as ordinary users have it."""
    made: dict[tuple[Test, str], Method] = {}
    for (test, variant), method in methods.items():
        if variant in _CONDITIONED and isinstance(method, Perftest):
            made[test, f"{variant}-ipv6"] = dataclasses.replace(method, gid_index=1)
            made[test, f"{variant}-roce-v1"] = dataclasses.replace(method, transport="roce-v1")
            made[test, f"{variant}-without-net-raw"] = dataclasses.replace(method, without_net_raw=True)
    return made


def _busy(methods: Mapping[tuple[Test, str], Method], variants: Collection[str]) -> dict[tuple[Test, str], Method]:
    """The same beside other work. CPU time, which would be that of both, is none of it."""
    return {
        (test, f"{variant}-busy"): Busy(method)
        for (test, variant), method in methods.items()
        if variant in variants and test != CPU_TEST
    }


_MAKERS: Mapping[str, Callable[[], Interconnect]] = {
    "tcp": _tcp,
    "soft-roce": _soft_roce,
    "soft-iwarp": _soft_iwarp,
    "udp": _udp,
}
INTERCONNECTS: tuple[str, ...] = tuple(_MAKERS)
#: Those that need a device of their own. They are measured where hosts have one, in place of
#: nothing in a study file.
_OF_DEVICES: Mapping[str, Callable[[], Interconnect]] = {
    "infiniband": lambda: _verbs("infiniband", "InfiniBand", None),
    "roce": lambda: _verbs("roce", "RoCE", None),
    "rxe": lambda: _verbs("rxe", "Soft RoCE (the kernel's rxe)", None),
    "iwarp": lambda: _verbs("iwarp", "iWARP", None, rdma_cm=True),
    "siw": lambda: _verbs("siw", "iWARP (the kernel's siw)", None, rdma_cm=True),
    "ipoib": lambda: dataclasses.replace(_tcp(), id="ipoib", title="TCP sockets over InfiniBand (IPoIB)"),
}


@functools.cache
def interconnect(name: str) -> Interconnect:
    """The interconnect of that name, which has to be one of INTERCONNECTS or of those that hosts have."""
    return {**_MAKERS, **_OF_DEVICES}[name]()


def urxe() -> Executable:
    """Where urxe is."""
    return own_program("urxe")


@functools.cache
def urxe_preload() -> str:
    """LD_PRELOAD of `urxe run`, for programs that another program starts; empty without urxe."""
    command = [urxe().name, "run", "--", "printenv", "LD_PRELOAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


@functools.cache
def cycles_per_us() -> float | None:
    """Rate of the cycle counter, measured once for 0.2 s; None where there is none or rocelab-sock is missing."""
    try:
        done = subprocess.run([sock.program().name, "clock"], capture_output=True, text=True, check=True, timeout=10)
        rate = float(json.loads(done.stdout)["cycles_per_us"])
    except (OSError, subprocess.SubprocessError, ValueError, KeyError):
        return None
    return rate if rate > 0 else None


def version(executable: Executable) -> str | None:
    """The version of a program: the one that is known, of its Debian package, else what it prints itself."""
    if executable.known_version is not None or executable.is_read:
        return executable.known_version
    if executable.package is not None and (installed := package_version(executable.package)) is not None:
        return installed
    if not executable.tells_version:
        return None
    printed = printed_version(executable.name, "--version")
    return printed.removeprefix(Path(executable.name).name).strip(" ,") or None if printed else None
