"""urxe and Linux rxe in turn on the same two guests: the fair comparison of their speed. Part of `make interop`.

The processors are emulated, so the numbers say nothing about real ones. They are good for the
comparison, as both devices run the same programs on the same kernels, over the same link, one after
the other. A system call and a checksum cost each of them what they cost the other.
"""

from __future__ import annotations

import contextlib
import re
import statistics
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pytest

from .guest import GUEST_DEVICE, GUEST_URXE, Guest
from .kernels import BUILT
from .runs import Side

PORT: Final = 18515
LIMIT_S: Final = 60.0
#: 1.07 s: a guest whose processor is emulated may stand still for longer than the 67 ms that
#: perftest gives it.
ACK_TIMEOUT: Final = "18"
READY_S: Final = 40.0
REPETITIONS: Final = 5


@dataclass(frozen=True, slots=True)
class Measure:
    """What is measured."""

    title: str
    command: str
    #: Which column of perftest's last line, from 0.
    column: int
    unit: str
    #: Whether more is better.
    more_is_better: bool


def _latency(bytes_: int) -> Measure:
    return Measure(f"SEND latency, {bytes_:,} B", f"ib_send_lat -n 1000 -s {bytes_}", 4, "µs", more_is_better=False)


def _bandwidth(verb: str, bytes_: int, count: int) -> Measure:
    title = f"{verb.upper()} bandwidth, {bytes_:,} B"
    return Measure(title, f"ib_{verb}_bw -n {count} -s {bytes_} --report_gbits", 3, "Gbit/s", more_is_better=True)


#: The latency is the median of a run; the bandwidth the mean of a run. Runs take a second or more:
#: what a program does for the first time costs an emulated processor a hundred milliseconds, and a
#: kernel module has done it all before.
MEASURES: Final = (
    *(_latency(bytes_) for bytes_ in (8, 1024, 16384)),
    _bandwidth("send", 1024, 10000),
    _bandwidth("write", 65536, 800),
    _bandwidth("read", 65536, 800),
    _bandwidth("write", 1 << 20, 50),
)


def sides(guest: Guest) -> tuple[Side, Side]:
    """The two devices of a guest, ours first. rxe's first GID is the link-local one."""
    return (
        Side(GUEST_URXE, "0", "", guest.address, ""),
        Side(GUEST_DEVICE, "1", "", guest.address, ""),
    )


def urxe_program() -> str:
    """Where the guests find `urxe`, as they have no path of ours: the file system is the host's."""
    return subprocess.run(["which", "urxe"], capture_output=True, text=True, check=True).stdout.strip()


def measured(measure: Measure, ends: Sequence[tuple[Guest, Side]]) -> float:
    """One run, from the second guest to the first."""
    (server, here), (client, there) = ends
    prefix = [urxe_program(), "run", "--"] if here.device == GUEST_URXE else []

    def line(side: Side) -> list[str]:
        program, *options = measure.command.split()
        return [*prefix, program, "-d", side.device, "-x", side.gid, "-F", "-m", "4096", "-u", ACK_TIMEOUT, *options]

    serving = server.start(line(here), limit_s=LIMIT_S)
    try:
        deadline_s = time.monotonic() + READY_S
        while "LISTEN" not in server.run(["ss", "-Htln", f"sport = :{PORT}"]).output:
            assert time.monotonic() < deadline_s, f"{measure.command} did not listen within {READY_S:g} s"
            time.sleep(0.1)
        asked = client.run([*line(there), here.address], limit_s=LIMIT_S)
        served = serving.wait()
    finally:
        serving.stop()
    assert (asked.status, served.status) == (0, 0), f"{asked.output}\n{served.output}"
    last = re.findall(r"^ *\d+ +\d+ +[\d.]+ .*$", asked.output, re.MULTILINE)
    assert last, asked.output
    return float(last[-1].split()[measure.column])


@contextlib.contextmanager
def one_processor(*guests: Guest) -> Iterator[None]:
    """Guests with one processor each: two of the host are then enough for both."""

    def set_second(online: int) -> None:
        for guest in guests:
            done = guest.run(["sh", "-c", f"echo {online} > /sys/devices/system/cpu/cpu1/online"])
            assert done.status == 0, done.output

    set_second(0)
    yield
    set_second(1)


@pytest.mark.timeout(2400)
def test_urxe_and_rxe_in_turn(guest: Guest, second_guest: Guest) -> None:
    with one_processor(guest, second_guest):
        found, miscounted = in_turn(guest, second_guest)
    text = table(found) + f"\nRun again, since perftest's clock had stood still: {miscounted}\n"
    print(text)
    (BUILT / "speed.md").write_text(text)
    for values in found.values():
        assert min(values) > 0


def in_turn(guest: Guest, second_guest: Guest) -> tuple[dict[tuple[Measure, str], list[float]], int]:
    """All that was measured, by what and the device; and how often perftest's clock had stood still.

    It counts cycles, and those of an emulated processor are not always what it was told: it says 0 then.
    """
    found: dict[tuple[Measure, str], list[float]] = {}
    miscounted = 0
    for _ in range(REPETITIONS):
        for measure in MEASURES:
            for ends in zip(sides(guest), sides(second_guest), strict=True):
                both = [(guest, ends[0]), (second_guest, ends[1])]
                value = measured(measure, both)
                if value == 0:
                    miscounted += 1
                    value = measured(measure, both)
                found.setdefault((measure, ends[0].device), []).append(value)
    return found, miscounted


def table(found: dict[tuple[Measure, str], list[float]]) -> str:
    """Medians, with the smallest and the largest of each, and how much better urxe is."""
    rows = ["| | Linux rxe | urxe | urxe is |", "|---|---|---|---|"]
    for measure in MEASURES:
        cells, medians = [], []
        for device in (GUEST_DEVICE, GUEST_URXE):
            values = found[measure, device]
            medians.append(statistics.median(values))
            low, high = (_shown(value) for value in (min(values), max(values)))
            cells.append(f"{_shown(medians[-1])} {measure.unit} ({low} to {high})")
        ratio = medians[1] / medians[0] if measure.more_is_better else medians[0] / medians[1]
        said = f"{ratio:.2f} times as fast" if ratio >= 1 else f"slower, {1 / ratio:.2f} times"
        rows.append(f"| {measure.title} | {' | '.join(cells)} | {said} |")
    return "\n".join(rows) + "\n"


def _shown(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
