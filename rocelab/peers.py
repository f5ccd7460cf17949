"""Which TCPs Soft RoCE is held against: those that wait as it does, and all of them. And how a TCP is named.

A TCP is a program's way to use sockets (`blocking`, `openmpi-ucx`) under a congestion control. In results it is
one variant, `blocking@cubic`; `blocking@default` is under whatever the machine has as its default. iWARP, which
is over TCP, has a congestion control in the same way: `send@cubic`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal

#: How a program waits for the network: in the end asleep in the kernel, though it, or the kernel
#: for it, may look before, as Soft RoCE by events does; or asking again and again.
Waiting = Literal["blocking", "polling"]
WAITINGS: Final[tuple[Waiting, ...]] = ("blocking", "polling")

TCP: Final = "tcp"
SOFT_ROCE: Final = "soft-roce"
#: The same device, whose transport is iWARP: RDMA over the kernel's TCP.
SOFT_IWARP: Final = "soft-iwarp"
#: Whose messages go over the TCP of the nodes, so that a study chooses their congestion control.
OVER_TCP: Final = (TCP, SOFT_IWARP)
#: How the ends of a link hand what arrives to TCP: as the fabric made them; by NAPI; by NAPI whose
#: interrupts wait at the server while programs poll (`rocelab.launch.reception`).
Reception = Literal["usual", "napi", "napi-deferred"]
USUAL: Final = "usual"

#: The congestion control that a machine gives to connections whose program names none.
DEFAULT: Final = "default"
SEPARATOR: Final = "@"

#: By level, the series of Soft RoCE that is held against TCP, for each way of waiting the first
#: that a run has. At the network level it is two-sided, as TCP is, and as what the publications
#: measured. MPI programs poll.
SUBJECTS: Final[Mapping[str, Mapping[Waiting, tuple[str, ...]]]] = {
    "network": {"polling": ("send",), "blocking": ("send-events",)},
    "mpi": {"polling": ("openmpi-ucx", "mpich-ucx", "mpich-ofi")},
    "program": {"polling": ("openmpi-ucx", "mpich-ucx", "mpich-ofi", "verbs", "rsockets")},
}
#: By level, the TCPs it is held against, by their names without congestion control. Others are
#: measured to check these, or under a condition of their own, such as load.
TCPS: Final[Mapping[str, Mapping[str, Waiting]]] = {
    "network": {
        **dict.fromkeys(
            ("blocking", "no-delay", "zero-copy", "spin", "kernel-poll", "kernel-prefer", "kernel-prefer-zero-copy"),
            "blocking",
        ),
        **dict.fromkeys(("busy-poll", "busy-poll-zero-copy", "busy-poll-kernel-prefer"), "polling"),
    },
    "mpi": dict.fromkeys(("openmpi-ob1", "openmpi-ucx", "mpich-ofi", "mpich-ucx"), "polling"),
    "program": dict.fromkeys(("openmpi-ob1", "openmpi-ucx", "mpich-ofi", "mpich-ucx", "sockets"), "polling"),
}

#: What the link has to be for TCPs whose sockets have the kernel poll; all others take it as it is.
_RECEPTIONS: Final[Mapping[str, Reception]] = {
    "kernel-poll": "napi",
    "kernel-prefer": "napi-deferred",
    "kernel-prefer-zero-copy": "napi-deferred",
    "busy-poll-kernel-prefer": "napi-deferred",
}

_WORDS: Final[Mapping[str, str]] = {
    "blocking": "TCP blocking",
    "blocking-loaded": "TCP blocking, under load",
    "blocking-qperf": "TCP blocking, by qperf",
    "blocking-iperf3": "TCP blocking, by iperf3",
    "no-delay": "TCP blocking, no delay",
    "zero-copy": "TCP blocking, zero copy",
    "busy-poll": "TCP busy-polling",
    "busy-poll-zero-copy": "TCP busy-polling, zero copy",
    "spin": "TCP looking, then blocking",
    "spin-loaded": "TCP looking, then blocking, under load",
    "kernel-poll": "TCP blocking, kernel polls",
    "kernel-prefer": "TCP blocking, kernel prefers to poll",
    "kernel-prefer-zero-copy": "TCP blocking, zero copy, kernel prefers to poll",
    "busy-poll-kernel-prefer": "TCP busy-polling, kernel prefers to poll",
    "openmpi-ob1": "TCP, Open MPI's own",
    "openmpi-ucx": "TCP, Open MPI with UCX",
    "mpich-ofi": "TCP, MPICH with OFI",
    "mpich-ucx": "TCP, MPICH with UCX",
}


#: The end of a variant's name that is one pair of programs with many queue pairs, in place of many
#: pairs of programs.
ONE_PROGRAM: Final = "-one-program"
#: Under which conditions a method is measured once more: the end of a variant's name, and words.
CONDITIONS: Final[Mapping[str, str]] = {
    "-busy": "beside other work",
    "-ipv6": "over IPv6",
    "-roce-v1": "over RoCE v1",
    "-without-net-raw": "without CAP_NET_RAW",
    "-without-dcqcn": "without DCQCN",
    ONE_PROGRAM: "one program",
}


def plain_name(name: str) -> tuple[str, str | None]:
    """A name without its condition, and that in words; None where it has none."""
    for end, words in CONDITIONS.items():
        if name.endswith(end):
            return name.removesuffix(end), words
    return name, None


def title(variant: str, default_control: str | None = None) -> str:
    """A TCP in words: `openmpi-ob1@cubic` as `TCP, Open MPI's own, cubic`; one that is not known here by its name.

    `default_control` is what the machine's default was: `blocking@default` is `TCP blocking, default (bbr)`.
    """
    plain, condition = plain_name(name_of(variant))
    words = (_WORDS.get(plain, f"TCP {plain}"), condition, control_words(variant, default_control))
    return ", ".join(word for word in words if word is not None)


def control_words(variant: str, default_control: str | None = None) -> str | None:
    """The congestion control of a variant in words: `default (bbr)`. None where it has none."""
    control = control_of(variant)
    return f"{DEFAULT} ({default_control})" if control == DEFAULT and default_control is not None else control


def matches(variant: str, wanted: str) -> bool:
    """Whether a variant is the one that is wanted; one wanted without a congestion control matches under any."""
    return variant == wanted or (control_of(wanted) is None and name_of(variant) == wanted)


def with_control(name: str, congestion_control: str) -> str:
    """The variant of a TCP, or of what is over TCP, under a congestion control: `blocking@cubic`."""
    return f"{name}{SEPARATOR}{congestion_control}"


def name_of(variant: str) -> str:
    """A variant without its congestion control, if it has one."""
    return variant.partition(SEPARATOR)[0]


def control_of(variant: str) -> str | None:
    """The congestion control of a variant; None where the run does not say, or where there is none."""
    return variant.partition(SEPARATOR)[2] or None


def reception_of(variant: str) -> Reception:
    """How the link has to receive for a variant."""
    return _RECEPTIONS.get(plain_name(name_of(variant))[0], USUAL)


def references(level: str, variants: Iterable[str], waiting: Waiting | None = None) -> list[str]:
    """Which variants of TCP Soft RoCE is held against: those that wait that way, or all."""
    known = TCPS.get(level, {})
    return [each for each in variants if (kind := known.get(name_of(each))) is not None and waiting in (None, kind)]
