"""Measures what the studies do not: IPv6, many processes and threads, a link shared with TCP, and a bare loop.

Usage: scripts/sharing.py [--csv FILE] [--repetitions N] [--only ipv6|processes|one-program|sharing|floor]

`make bench` runs it, on a machine that does nothing else. Every row is the median of so many repetitions with the least
and the most of them; repetitions are interleaved. What starves, hangs or fails is named, and the exit status is 1.
docs/sharing.md says what each part is.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import IO, Final, NamedTuple

from rocelab.fabric.base import FabricError, LaunchError, Node
from rocelab.fabric.emulated import up
from rocelab.stats import text
from rocelab.study.provenance import provenance
from rocelab.tools import queue_probe
from rocelab.tools.base import MAIN_METRIC, Method, Reading, Request, Test, ToolError
from rocelab.tools.interconnects import urxe
from rocelab.tools.perftest import Perftest
from rocelab.tools.sock import Sock

from sharing_floor import bare_latency_us, bare_mbps
from sharing_stand import DIRECT, LIMIT_S, NODES, SWITCH, WIDE, Pair, SharingError, Stand, rates_mbps, soft_roce
from sharing_ucx import UcxThreads

COLUMNS: Final = ("what", "condition", "metric", "unit", "median", "low", "high", "repetitions")
REPETITIONS: Final = 5
CONTROL: Final = "cubic"
#: Of the comparison of IPv4 and IPv6: test, size in bytes, messages.
ALONE: Final[tuple[tuple[Test, int, int], ...]] = (
    ("latency", 64, 5000),
    ("latency", 4096, 5000),
    ("bandwidth", 65536, 4000),
    ("bandwidth", 1 << 20, 300),
)
COUNTS: Final = (1, 2, 4, 8, 16)
WINDOW_S: Final = 0.4
#: A stream has its pace after its first second.
SETTLE_S: Final = 1.0
SECONDS: Final = 3


class Key(NamedTuple):
    """What a value is of."""

    what: str
    condition: str
    metric: str
    unit: str


Values = Mapping[Key, float]
Step = tuple[str, Callable[[], Values]]


def ipv6(stand: Stand) -> Iterator[Step]:
    """One pair of programs at a time, over IPv4 and over IPv6."""
    for test, size_bytes, messages in ALONE:
        for version in (4, 6):
            methods: dict[str, Method] = {
                "Soft RoCE, SEND": Perftest("send", test, urxe(), gid_index=0 if version == 4 else 1),
                f"TCP busy-polling, {CONTROL}": Sock(test, "busy-poll"),
            }
            for what, method in methods.items():
                name = f"{what}, IPv{version}"
                # perftest's ends find each other over IPv4; the address of the queue pairs is
                # chosen by their index.
                is_named = version == 6 and isinstance(method, Sock)
                address = stand.receiver.addresses6[DIRECT.id] if is_named else None
                request = stand.request(DIRECT, stand.nodes[0], size_bytes, messages, address)
                size = text.size(size_bytes)
                yield f"{name}, {test} of {size}", partial(_alone, stand, name, test, method, request, condition=size)


def _alone(stand: Stand, name: str, test: Test, pair: Pair, request: Request, *, condition: str) -> Values:
    stand.choose(DIRECT, CONTROL)
    reading = stand.finished(pair, replace(request, port=stand.port()))
    metric, unit = MAIN_METRIC[test]
    return {Key(name, condition, test, unit): _value(reading, metric)}


def _value(reading: Reading, metric: str) -> float:
    """The first of that metric: of latencies, the median."""
    return next(each.value for each in reading.values if each.metric == metric)


def processes(stand: Stand) -> Iterator[Step]:
    """More and more pairs of programs at once, all of a node on one core."""
    kinds: dict[str, tuple[Method, Sequence[int]]] = {
        "SEND, polling": (soft_roce(), (65536, 64)),
        "SEND, by events": (soft_roce(events=True), (65536,)),
        f"TCP blocking, {CONTROL}": (Sock("bandwidth", "blocking"), (65536, 64)),
    }
    for count in COUNTS:
        for what, (method, sizes_bytes) in kinds.items():
            for size_bytes in sizes_bytes:
                name = f"{what}, {text.size(size_bytes)}"
                yield f"{name}, {count} at once", partial(_pairs, stand, name, method, size_bytes, count)


def _pairs(stand: Stand, name: str, method: Method, size_bytes: int, count: int) -> Values:
    stand.choose(DIRECT, CONTROL)
    sender = stand.nodes[0]
    pairs = [(method, sender, stand.request(DIRECT, sender, size_bytes)) for _ in range(count)]
    with ExitStack() as ends:
        pids = stand.streams(pairs, ends)
        rates = [rate for (rate,) in rates_mbps(stand.watch(2, WINDOW_S).result(), pids)]
    condition = text.plural(count, "pair")
    metrics = {"total": sum(rates), "least of a pair": min(rates), "most of a pair": max(rates)}
    return {Key(name, condition, metric, "Mbps"): value for metric, value in metrics.items()}


def one_program(stand: Stand) -> Iterator[Step]:
    """More and more queue pairs of a program with one thread, and more and more threads of one program."""
    many = stand.request(DIRECT, stand.nodes[0], 65536, 4000)
    # Sixteen threads that poll on one core take their time.
    few = replace(many, messages=1000)
    size = text.size(many.size_bytes)
    for count in COUNTS:
        pairs, threads = text.plural(count, "queue pair"), text.plural(count, "thread")
        kinds: tuple[tuple[str, str, Pair, Request], ...] = (
            ("WRITE, polling", pairs, Perftest("write", "bandwidth", urxe(), queue_pairs=count), many),
            ("UCX on Soft RoCE", threads, UcxThreads(count, "soft-roce"), few),
            (f"UCX on TCP, {CONTROL}", threads, UcxThreads(count, "tcp"), few),
        )
        for what, condition, pair, request in kinds:
            name = f"{what}, {size}"
            yield f"{name}, {condition}", partial(_alone, stand, name, "bandwidth", pair, request, condition=condition)


class Shared(NamedTuple):
    """Streams that share a link, by how many there are of each."""

    soft_roce: int
    tcp: int
    control: str = CONTROL

    @property
    def name(self) -> str:
        """Such as ``1 Soft RoCE, 4 TCP (cubic)``."""
        parts = [f"{self.soft_roce} Soft RoCE"] * bool(self.soft_roce)
        parts += [f"{self.tcp} TCP ({self.control})"] * bool(self.tcp)
        return ", ".join(parts) or "no stream"


SHARED: Final = (
    Shared(0, 0),
    *(Shared(1, 1, control) for control in ("cubic", "bbr", "reno")),
    Shared(1, 4),
    Shared(2, 0),
    Shared(0, 2),
)


def sharing(stand: Stand) -> Iterator[Step]:
    """Streams from two nodes to a third through a switch, which a fourth asks for its queue."""
    for shared in SHARED:
        yield shared.name, partial(_shared, stand, shared)


def _shared(stand: Stand, shared: Shared) -> Values:
    stand.choose(SWITCH, shared.control)
    one, _, other, third = stand.nodes
    kinds = [soft_roce(events=True)] * shared.soft_roce + [Sock("bandwidth", "blocking")] * shared.tcp
    # The first stream is alone on its node, so it and the others meet at the switch's port and
    # nowhere before.
    senders = [one, *[other] * len(kinds)]
    pairs: list[tuple[Pair, Node, Request]] = [
        (method, sender, stand.request(SWITCH, sender, 65536)) for method, sender in zip(kinds, senders, strict=False)
    ]
    port = stand.port()
    with ExitStack() as ends:
        ends.callback(stand.start(stand.receiver, queue_probe.command("answer", str(port))).stop)
        pids = stand.streams(pairs, ends)
        time.sleep(SETTLE_S)
        address = stand.receiver.addresses[SWITCH.id]
        probe = stand.start(third, queue_probe.command("ask", address, str(port), str(SECONDS)))
        ends.callback(probe.stop)
        rates = rates_mbps(stand.watch(SECONDS + 1, 1.0).result(), pids)
        asked = probe.wait(LIMIT_S)
        if asked.exit_status != 0:
            raise SharingError(f"the third party failed: {asked.stderr.strip()[-200:]}")
        round_trips_ms = json.loads(asked.stdout)
    return {
        Key(shared.name, condition, metric, unit): value
        for condition, metric, unit, value in (*_shares(shared, rates), *_queue(round_trips_ms))
    }


Cell = tuple[str, str, str, float]


def _shares(shared: Shared, rates: Sequence[Sequence[float]]) -> Iterator[Cell]:
    """Of streams of which the first are Soft RoCE: how the seconds were divided."""
    if not rates:
        return
    totals = [statistics.mean(each) for each in rates]
    total = sum(totals)
    if shared.soft_roce and shared.tcp:
        yield "streams", "share of Soft RoCE", "%", 100 * sum(totals[: shared.soft_roce]) / total
    yield "streams", "least share", "%", 100 * min(totals) / total
    yield "streams", "most share", "%", 100 * max(totals) / total
    yield "streams", "total", "Mbps", total
    yield "streams", "least in a second", "Mbps", min(min(each) for each in rates)


def _queue(round_trips_ms: Sequence[float | None]) -> Iterator[Cell]:
    """What the third party's datagrams met."""
    answered = sorted(each for each in round_trips_ms if each is not None)
    if not answered:
        raise SharingError("the third party starved: none of its datagrams came back")
    yield "third party", "median", "ms", statistics.median(answered)
    yield "third party", "99 %", "ms", answered[(len(answered) - 1) * 99 // 100]
    yield "third party", "lost", "%", 100 * (1 - len(answered) / len(round_trips_ms))


#: The sizes of the bars against TCP, less those that tell nothing new; and about as many bytes.
FLOOR_SIZES: Final = (64, 512, 4096, 16384, 65536, 1 << 20)
FLOOR_BOTH_WAYS_SIZES: Final = (65536, 1 << 20)
FLOOR_LATENCY_SIZES: Final = (64, 4096, 16384, 65536, 262_144, 1 << 20)
#: Messages at most, and bytes.
FLOOR_MOST: Final[Mapping[Test, tuple[int, int]]] = {
    "bandwidth": (200_000, 400 << 20),
    "bidirectional-bandwidth": (200_000, 400 << 20),
    "latency": (5000, 100 << 20),
}


#: What a busy process per core takes of a stream.
FLOOR_BUSY_SIZES: Final = (4096, 65536)
#: A process of the same priority that never waits.
BUSY: Final = ("sh", "-c", "while :; do :; done")


def floor(stand: Stand) -> Iterator[Step]:
    """WRITEs beside a bare loop of datagrams that has nothing of a NIC but the bytes and the ICRCs."""
    for size_bytes in FLOOR_SIZES:
        yield f"a bare loop, {text.size(size_bytes)}", partial(_floor_of_stream, stand, size_bytes)
    for size_bytes in FLOOR_BOTH_WAYS_SIZES:
        yield f"a bare loop both ways, {text.size(size_bytes)}", partial(_floor_of_both_ways, stand, size_bytes)
    for size_bytes in FLOOR_LATENCY_SIZES:
        yield f"a bare exchange, {text.size(size_bytes)}", partial(_floor_of_exchange, stand, size_bytes)
    for size_bytes in FLOOR_BUSY_SIZES:
        yield f"beside other work, {text.size(size_bytes)}", partial(_floor_beside_work, stand, size_bytes)


def _measured(stand: Stand, pair: Pair, test: Test, size_bytes: int) -> float:
    most, bytes_ = FLOOR_MOST[test]
    request = stand.request(WIDE, stand.nodes[0], size_bytes, min(most, bytes_ // size_bytes))
    return _value(stand.finished(pair, request), MAIN_METRIC[test][0])


def _write(test: Test) -> Perftest:
    return Perftest("write", test, urxe())


def _floor_of_stream(stand: Stand, size_bytes: int) -> Values:
    bare, soft_roce = bare_mbps(size_bytes), _measured(stand, _write("bandwidth"), "bandwidth", size_bytes)
    return _keyed("WRITE beside a bare loop", size_bytes, _beside_bare_loop(bare, soft_roce))


def _floor_of_both_ways(stand: Stand, size_bytes: int) -> Values:
    test: Test = "bidirectional-bandwidth"
    bare, soft_roce = bare_mbps(size_bytes, ways=2), _measured(stand, _write(test), test, size_bytes)
    return _keyed("WRITE beside a bare loop, both ways", size_bytes, _beside_bare_loop(bare, soft_roce))


def _beside_bare_loop(bare_mbps: float, write_mbps: float) -> Mapping[tuple[str, str], float]:
    return {
        ("bare loop", "Mbps"): bare_mbps,
        ("WRITE", "Mbps"): write_mbps,
        ("WRITE / bare loop", "times"): write_mbps / bare_mbps,
    }


def _floor_of_exchange(stand: Stand, size_bytes: int) -> Values:
    ways, soft_roce = bare_latency_us(size_bytes), _measured(stand, _write("latency"), "latency", size_bytes)
    bare = min(ways.values())
    values = {
        ("bare exchange", "us"): bare,
        ("WRITE", "us"): soft_roce,
        ("WRITE / bare exchange", "times"): soft_roce / bare,
        ("datagrams / frames, bare", "times"): ways["datagrams"] / ways["frames"],
    }
    return _keyed("WRITE beside a bare exchange", size_bytes, values)


def _floor_beside_work(stand: Stand, size_bytes: int) -> Values:
    stand.choose(WIDE, CONTROL)
    kinds: dict[str, Callable[[], float]] = {
        "bare loop": partial(bare_mbps, size_bytes),
        "WRITE": partial(_measured, stand, _write("bandwidth"), "bandwidth", size_bytes),
        "TCP": partial(_measured, stand, Sock("bandwidth", "blocking"), "bandwidth", size_bytes),
    }
    alone = {what: measure() for what, measure in kinds.items()}
    with ExitStack() as ends:
        for node in stand.nodes[:2]:
            ends.callback(stand.start(node, BUSY).stop)
        busy = {what: measure() for what, measure in kinds.items()}
    values = {(what, "times"): busy[what] / alone[what] for what in kinds}
    return _keyed("Bandwidth beside other work / alone", size_bytes, values)


def _keyed(what: str, size_bytes: int, values: Mapping[tuple[str, str], float]) -> Values:
    return {Key(what, text.size(size_bytes), *each): value for each, value in values.items()}


PARTS: Final[Mapping[str, Callable[[Stand], Iterator[Step]]]] = {
    "ipv6": ipv6,
    "processes": processes,
    "one-program": one_program,
    "sharing": sharing,
    "floor": floor,
}


def measured(
    steps: Sequence[Step], repetitions: int, tell: Callable[[str], None]
) -> tuple[dict[Key, list[float]], list[str]]:
    """All values by what they are of, and what failed. Repetitions are interleaved."""
    found: dict[Key, list[float]] = {}
    failures = []
    for repetition in range(1, repetitions + 1):
        for name, step in steps:
            tell(f"repetition {repetition} of {repetitions}: {name}")
            try:
                values = step()
            except (SharingError, ToolError, LaunchError) as error:
                failures.append(f"{name}, repetition {repetition}: {error}")
                continue
            for key, value in values.items():
                found.setdefault(key, []).append(value)
    return found, failures


def rows(found: Mapping[Key, Sequence[float]]) -> list[list[str]]:
    """The lines of the CSV under its head."""
    return [
        [*key, *map(_number, (statistics.median(values), min(values), max(values))), str(len(values))]
        for key, values in found.items()
    ]


def _number(value: float) -> str:
    """Four digits, which is more than is certain."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.4g}"


def write(file: IO[str], conditions: str, found: Mapping[Key, Sequence[float]]) -> None:
    """A comment, the head, the rows."""
    file.write(f"# {conditions}\n")
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(rows(found))


def conditions() -> str:
    """When, with what and on what machine."""
    machine = provenance("", (), "emulated")
    commit = f"commit {(machine.git_commit or 'unknown')[:7]}{' with changes' if machine.git_dirty else ''}"
    date = f"{datetime.now(UTC):%Y-%m-%d}"
    return f"{date}, {commit}; {machine.cpu_model}, {text.plural(machine.cores, 'core')}; Linux {machine.kernel}"


def _main() -> int:
    parser = argparse.ArgumentParser(
        description="Measure IPv6, many processes, a link shared with TCP, and a bare loop."
    )
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write the rows there, too")
    parser.add_argument("--repetitions", type=int, default=REPETITIONS, metavar="N", help="%(default)s")
    parser.add_argument("--only", choices=PARTS, help="one part alone")
    given = parser.parse_args()
    if given.repetitions < 1:
        parser.error(f"--repetitions is at least 1, not {given.repetitions}")
    try:
        with up((DIRECT, SWITCH, WIDE), NODES) as fabric:
            stand = Stand(fabric)
            steps = [step for name, part in PARTS.items() if given.only in (None, name) for step in part(stand)]
            found, failures = measured(steps, given.repetitions, partial(print, file=sys.stderr))
    except FabricError as error:
        print(f"scripts/sharing.py: {error}", file=sys.stderr)
        return 1
    where = conditions()
    for *words, unit, median, low, high, count in rows(found):
        print(f"{', '.join(words):<62}{median:>9} {unit:<5}({low} to {high}, {count})")
    if given.csv is not None:
        with given.csv.open("w", encoding="utf-8") as file:
            write(file, where, found)
    for failure in failures:
        print(f"scripts/sharing.py: failed: {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(_main())
