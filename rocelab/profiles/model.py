"""What a profile holds. One file of ``data/`` each; every file says in ``sources`` where its numbers come from.

All simulations use these and no numbers of their own, so what is said of an adapter is said once.
"""

from __future__ import annotations

import difflib
import itertools
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib import resources
from typing import Annotated, Literal, TypeVar

import pydantic

#: Bits of data for bits on the wire.
#: "rs-fec" is 256b/257b and RS(544,514) (IEEE 802.3, clause 91), which HDR and NDR have as well.
ENCODINGS: Mapping[str, float] = {
    "8b/10b": 8 / 10,
    "64b/66b": 64 / 66,
    "128b/130b": 128 / 130,
    "rs-fec": 256 / 257 * 514 / 544,
}
#: InfiniBand: bytes that mark the beginning and the end of a packet. With 8b/10b these are two
#: symbols (IBTA volume 2, 5.7); with 64b/66b a packet fills whole blocks of 8 bytes, for which one
#: is counted, also where there is forward error correction.
DELIMITER_BYTES: Mapping[str, int] = {"8b/10b": 2, "64b/66b": 8, "rs-fec": 8}
#: PCI Express: transfers per second and lane in 10^9, and encoding (PCI Express Base Specification,
#: 3.0, section 4.2).
PCIE_GENERATIONS: Mapping[int, tuple[float, str]] = {
    1: (2.5, "8b/10b"),
    2: (5.0, "8b/10b"),
    3: (8.0, "128b/130b"),
    4: (16.0, "128b/130b"),
    5: (32.0, "128b/130b"),
}

Positive = Annotated[float, pydantic.Field(gt=0)]
Count = Annotated[int, pydantic.Field(ge=0)]
Range = tuple[float, float]


class ProfileError(Exception):
    """A profile that does not exist, or one whose file is wrong."""


class _Data(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)


class _Profile(_Data):
    id: str
    title: str
    version: Annotated[int, pydantic.Field(ge=1)] = 1
    """Raised with every change of a value; ``changes.toml`` says why."""
    sources: Annotated[Mapping[str, str], pydantic.Field(min_length=1)]
    """By key, or for the whole: the publication, or what was assumed and why."""
    assumed: Mapping[str, Range] = {}
    """By key: from what to what a value may as well be that no publication states."""

    @pydantic.model_validator(mode="after")
    def _assumes_what_it_has(self) -> _Profile:
        for key, (low, high) in self.assumed.items():
            value = getattr(self, key, None)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ValueError(f"assumed.{key}: the profile has no such number")  # noqa: TRY004 (pydantic's rule)
            if not low <= value <= high:
                raise ValueError(f"assumed.{key}: {value:g} is not from {low:g} to {high:g}")
        return self


class Port(_Data):
    """The network side of an adapter."""

    kind: Literal["infiniband", "ethernet"]
    ports: Annotated[int, pydantic.Field(ge=1, le=4)] = 1
    lanes: Annotated[int, pydantic.Field(ge=1, le=16)]
    lane_gbaud: Positive
    """Signalling rate of a lane, 10^9 bit/s before encoding: of PAM4, two bits a symbol."""
    encoding: Literal["8b/10b", "64b/66b", "rs-fec"]
    mtu_bytes: Annotated[int, pydantic.Field(ge=256, le=9000)]
    """Path MTU of RDMA: payload of a full packet. For sockets, payload of a full segment."""

    @property
    def data_rate_gbps(self) -> float:
        """What one port carries after encoding, packet headers included."""
        return self.lanes * self.lane_gbaud * ENCODINGS[self.encoding]

    @property
    def delimiter_bytes(self) -> int:
        """What marks the beginning and the end of a packet, as far as it is not Ethernet's preamble and gap."""
        return DELIMITER_BYTES[self.encoding] if self.kind == "infiniband" else 0


class Pcie(_Data):
    """The host side of an adapter."""

    generation: Literal[1, 2, 3, 4, 5]
    lanes: Annotated[int, pydantic.Field(ge=1, le=16)]


class Software(_Data):
    """An adapter that is a program, on the processor that also runs the programs it serves."""

    batch_bytes: Annotated[int, pydantic.Field(ge=1)]
    """Data that passes to or from the kernel in one system call."""
    batch_packets: Annotated[int, pydantic.Field(ge=1)]
    """The same in packets."""
    send_packet_ns: Count
    """What a packet costs to send."""
    send_gbps: Positive
    """Rate at which the processor gets data out: copies, checksums."""
    receive_gbps: Positive
    """Rate at which it takes data in."""
    latency_ns: Count
    """From the kernel of one host until the other sees a batch, if it has nothing else to do."""


class Adapter(_Profile):
    """A network adapter in one of its modes: an interconnect, as far as the adapter makes it."""

    service: Literal["rdma", "sockets"]
    """What programs talk to: verbs, or sockets of the kernel."""
    port: Port
    pcie: Pcie | None = None
    """Hardware has one."""
    software: Software | None = None
    """What is no hardware has this instead."""
    message_rate_mps: Positive
    """Packets that it starts, or takes in, at most: 10^6 per second. Software: that it takes in, doing nothing else."""
    send_ns: Count
    """From the arrival of the doorbell to the first bit on the wire, without what is fetched over the bus.
    Software: what the system call costs that sends a batch."""
    receive_ns: Count
    """From the last bit on the wire to the write of the completion, without the transfer of the data. Software: what
    the system call costs that fetches a batch."""
    fetches_requests: bool = False
    """Whether it fetches a work request without inline data, because the doorbell does not carry it."""
    gather_bytes: Count = 0
    """Payload that it asks memory for at once, and waits for; a packet's, if that is more."""
    buffer_gbps: Positive | None = None
    """Rate of its packet memory, which packets pass as a whole at each side. Unset: they do not wait there."""
    nak_ns: Count = 0
    """What it takes longer over a negative acknowledgement, before it sends again what is missing."""

    @pydantic.model_validator(mode="after")
    def _is_either(self) -> Adapter:
        if (self.pcie is None) == (self.software is None):
            raise ValueError("an adapter has [pcie] if it is hardware, or [software], and not both")
        return self


class Host(_Profile):
    """The machine around the adapter."""

    pcie_generation: Literal[1, 2, 3, 4, 5]
    """The fastest that its slot has."""
    payload_bytes: Annotated[int, pydantic.Field(ge=64, le=4096)]
    """Largest data of a PCI Express write."""
    completion_bytes: Annotated[int, pydantic.Field(ge=64, le=4096)]
    """Data of an answer to a PCI Express read."""
    read_request_bytes: Annotated[int, pydantic.Field(ge=64, le=4096)] = 512
    """Data that one PCI Express read asks for."""
    read_latency_ns: Count
    """From a PCI Express read of the adapter until memory begins to answer."""
    posted_ns: Count
    """From a PCI Express write, of a doorbell or a completion, until the other end sees it."""
    cores: Annotated[int, pydantic.Field(ge=1)] | None = None
    """Of all processors; unset: no profile of a machine for MPI programs."""
    memory_gbps: Positive | None = None
    """What processes of the host can send each other through its memory, all together."""


class Stack(_Profile):
    """Software between the program and the adapter: what a message costs the processor."""

    send_ns: Count
    """To send a message, while the program can do nothing else."""
    receive_ns: Count
    """To take in a message, likewise."""
    latency_ns: Count = 0
    """What passes besides between adapter and program at the receiver: interrupt, soft interrupt, waking."""
    inline_bytes: Count = 0
    """Payload up to which the program writes it to the adapter with the doorbell."""
    copy_gbps: Positive | None = None
    """Rate at which data is copied at each side, 10^9 bit/s. Unset: it is not copied."""
    copied_bytes: Count = 0
    """RDMA: the longest message that is copied."""
    window_bytes: Annotated[int, pydantic.Field(ge=1)] | None = None
    """Data in flight at most (sockets)."""


class Mpi(_Profile):
    """An MPI library above verbs, as SimGrid simulates one."""

    eager_bytes: Annotated[int, pydantic.Field(ge=1)]
    """From this size on, a message waits until its receiver is there and has answered."""
    send_ns: Count
    """Of the processor to send a message, without what the stack below costs."""
    receive_ns: Count
    copy_gbps: Positive
    """Rate at which each side copies a message that is sent at once, 10^9 bit/s."""
    shared_latency_ns: Count
    """Between processes of a host, without `send_ns` and `receive_ns`."""
    shared_gbps: Positive
    """Between two processes of a host."""
    collectives: str
    """SimGrid's selection of collective algorithms."""
    replaced: Mapping[str, str] = {}
    """Collectives for which another of SimGrid's selections is taken."""


class Switch(_Profile):
    """A switch. Rates of its ports are those of what is plugged in."""

    kind: Literal["infiniband", "ethernet"]
    forwarding: Literal["cut-through", "store-and-forward"]
    latency_ns: Count
    """From the first bit in to the first bit out of a packet that has to wait for nothing (cut-through), or from the
    last bit in (store-and-forward)."""
    buffer_bytes: Annotated[int, pydantic.Field(ge=1)]
    """All of it, shared by the ports. InfiniBand: of one port."""
    port_reserve_bytes: Count = 0
    """What every queue of a port has for itself, whatever the others use."""
    shared_shift: Annotated[int, pydantic.Field(ge=0, le=10)] = 3
    """A queue may hold the part 1 / 2^this of what is free of the shared buffer."""
    lossy_bytes: Annotated[int, pydantic.Field(ge=1)] | None = None
    """What a queue without priority flow control holds at most. Unset: its dynamic share."""
    headroom_delay_ns: Count = 1000
    """Priority flow control reserves what arrives in three times this after a pause was sent."""
    ecn_min_bytes_per_25g: Count | None = None
    """Marking begins at this queue length, for every 25 Gbps of the port. Unset: no marking."""
    ecn_max_bytes_per_25g: Count | None = None
    """From here on every packet is marked."""
    ecn_max_probability: Annotated[float, pydantic.Field(ge=0, le=1)] = 0.2
    """Probability of a mark just below."""


class Workload(_Profile):
    """How long the flows of a kind of cluster are."""

    points: Annotated[tuple[tuple[float, float], ...], pydantic.Field(min_length=2)]
    """Ascending: a size in bytes, and the part of all flows that are not longer, in percent. From 0 to 100; between two
    points all sizes are as likely."""

    @pydantic.model_validator(mode="after")
    def _ascends(self) -> Workload:
        parts = [part for _, part in self.points]
        if list(self.points) != sorted(self.points) or parts != sorted(parts) or (parts[0], parts[-1]) != (0, 100):
            raise ValueError("points ascend in both, sizes and percent, and the percent go from 0 to 100")
        return self

    def quantile_bytes(self, percent: float) -> int:
        """The size that so many percent of the flows do not exceed."""
        for (low, start), (high, end) in itertools.pairwise(self.points):
            if percent <= end:
                share = (percent - start) / (end - start) if end > start else 1.0
                return max(1, round(low + share * (high - low)))
        return round(self.points[-1][0])

    @property
    def mean_bytes(self) -> float:
        """The mean size."""
        spans = itertools.pairwise(self.points)
        return sum((end - start) / 100 * (low + high) / 2 for (low, start), (high, end) in spans)


def bus_gbps(adapter: Adapter, host: Host) -> float:
    """What the bus carries in each direction after encoding: the slower of adapter and slot.

    An adapter in software has none: a wide one stands for what is never asked.
    """
    bus = adapter.pcie or Pcie(generation=host.pcie_generation, lanes=16)
    transfers, encoding = PCIE_GENERATIONS[min(bus.generation, host.pcie_generation)]
    return transfers * ENCODINGS[encoding] * bus.lanes


AnyProfile = Adapter | Host | Mpi | Stack | Switch | Workload
_Kind = TypeVar("_Kind", Adapter, Host, Mpi, Stack, Switch, Workload)
_replaced: ContextVar[Mapping[str, Mapping[str, AnyProfile]]] = ContextVar("_replaced")


@contextmanager
def replaced(profiles: Mapping[str, Mapping[str, AnyProfile]]) -> Iterator[None]:
    """While this lasts, and in this thread, these profiles, by kind and id, stand for those of their names."""
    token = _replaced.set(profiles)
    try:
        yield
    finally:
        _replaced.reset(token)


def _known(folder: str, model: type[_Kind]) -> Mapping[str, _Kind]:
    """The profiles of a kind, as they are now."""
    known: Mapping[str, _Kind] = _load(folder, model)
    instead = _replaced.get({}).get(folder, {})
    return {**known, **{name: each for name, each in instead.items() if isinstance(each, model)}} if instead else known


@cache
def _load(folder: str, model: type[_Kind]) -> Mapping[str, _Kind]:
    found: dict[str, _Kind] = {}
    entries = resources.files("rocelab.profiles").joinpath("data", folder).iterdir()
    for entry in sorted(entries, key=lambda entry: entry.name):
        if not entry.name.endswith(".toml"):
            continue
        name = entry.name.removesuffix(".toml")
        found[name] = read(entry.read_text(encoding="utf-8"), name, f"profiles/data/{folder}/{entry.name}", model)
    return found


def read(text: str, name: str, source: str, model: type[_Kind]) -> _Kind:
    """The profile in a text. Raises ProfileError, which says what is wrong in which file."""
    try:
        return model.model_validate(tomllib.loads(text) | {"id": name})
    except tomllib.TOMLDecodeError as error:
        raise ProfileError(f"{source}: not valid TOML: {error}") from None
    except pydantic.ValidationError as error:
        wrong = [
            f"{'.'.join(str(part) for part in each['loc'])}: "
            + ("this key is missing" if each["type"] == "missing" else each["msg"])
            for each in error.errors()
        ]
        raise ProfileError(f"{source}: {'; '.join(wrong)}") from None


def _find(what: str, known: Mapping[str, _Kind], name: str) -> _Kind:
    if name not in known:
        close = difflib.get_close_matches(name, known, 1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise ProfileError(f"there is no {what} {name!r}{hint}; known: {', '.join(known)}")
    return known[name]


def adapters() -> Mapping[str, Adapter]:
    """Every adapter by its id, which is the name of its file and of the interconnect in studies."""
    return _known("adapters", Adapter)


def hosts() -> Mapping[str, Host]:
    """Every host by its id."""
    return _known("hosts", Host)


def mpis() -> Mapping[str, Mpi]:
    """Every MPI library by its id."""
    return _known("mpis", Mpi)


def stacks() -> Mapping[str, Stack]:
    """Every stack by its id."""
    return _known("stacks", Stack)


def switches() -> Mapping[str, Switch]:
    """Every switch by its id."""
    return _known("switches", Switch)


def workloads() -> Mapping[str, Workload]:
    """Every workload by its id."""
    return _known("workloads", Workload)


def adapter(name: str) -> Adapter:
    """The adapter of that name. Raises ProfileError."""
    return _find("adapter", adapters(), name)


def host(name: str) -> Host:
    """The host of that name. Raises ProfileError."""
    return _find("host", hosts(), name)


def mpi(name: str) -> Mpi:
    """The MPI library of that name. Raises ProfileError."""
    return _find("MPI library", mpis(), name)


def stack(name: str) -> Stack:
    """The stack of that name. Raises ProfileError."""
    return _find("stack", stacks(), name)


def switch(name: str) -> Switch:
    """The switch of that name. Raises ProfileError."""
    return _find("switch", switches(), name)


def workload(name: str) -> Workload:
    """The workload of that name. Raises ProfileError."""
    return _find("workload", workloads(), name)


_KINDS: Mapping[str, Callable[[], Mapping[str, AnyProfile]]] = {
    "adapters": adapters,
    "hosts": hosts,
    "mpis": mpis,
    "stacks": stacks,
    "switches": switches,
    "workloads": workloads,
}


def find(kind: str, name: str) -> AnyProfile:
    """The profile of a kind, which is its folder, and a name. Raises ProfileError."""
    if kind not in _KINDS:
        raise ProfileError(f"there is no kind of profile {kind!r}; there are {', '.join(_KINDS)}")
    known = _KINDS[kind]()
    if name not in known:
        raise ProfileError(f"there is no profile {kind}/{name}; there are {', '.join(known)}")
    return known[name]
