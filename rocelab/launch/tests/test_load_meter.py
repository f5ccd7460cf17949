"""Whose CPU time is whose, on a /proc that the test writes."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rocelab.launch.load_meter import NAMES_EVERY_S, LoadMeter, Taken

TICKS = os.sysconf("SC_CLK_TCK")
KERNEL = 0x00200000
ROCELAB, KEEPER, PROGRAM, OTHER, SOFTIRQ = 100, 101, 150, 200, 14


@dataclass
class Machine:
    """Two cores, and a clock that stands still by itself."""

    root: Path
    now_s: float = 0.0
    busy_s: float = 0.0
    steal_s: float = 0.0
    softirq_s: float = 0.0
    processes: dict[int, Path] = field(default_factory=dict)

    def set(self, pid: int, parent: int, name: str, own_s: float, *, waited_s: float = 0.0, flags: int = 0) -> None:
        folder = self.root / str(pid)
        folder.mkdir(exist_ok=True)
        numbers = [0] * 30
        numbers[:1] = [parent]
        numbers[5], numbers[18] = flags, 5
        numbers[10], numbers[12] = round(own_s * TICKS), round(waited_s * TICKS)
        (folder / "stat").write_text(f"{pid} ({name}) S {' '.join(map(str, numbers))}\n")

    def end(self, pid: int) -> None:
        (self.root / str(pid) / "stat").unlink()
        (self.root / str(pid)).rmdir()

    def write(self) -> None:
        """Both cores have the same share of everything."""
        idle_s = 2 * self.now_s - self.busy_s - self.steal_s
        each = [round(value * TICKS / 2) for value in (self.busy_s - self.softirq_s, 0, 0, idle_s, 0, 0)]
        each += [round(value * TICKS / 2) for value in (self.softirq_s, self.steal_s)]
        line = " ".join(map(str, [*each, 0, 0]))
        (self.root / "stat").write_text(f"cpu  {line}\ncpu0 {line}\ncpu1 {line}\nintr 5 1\n")

    def meter(self, *, apart: bool = False) -> LoadMeter:
        return LoadMeter(self.root, root_pid=ROCELAB, cores=(0, 1), interrupts_apart=apart, clock=lambda: self.now_s)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    made.set(ROCELAB, 1, "rocelab", 1.0)
    made.set(KEEPER, ROCELAB, "keeper) (x", 0.5)
    made.set(OTHER, 1, "firefox", 50.0)
    made.set(SOFTIRQ, 2, "ksoftirqd/0", 3.0, flags=KERNEL)
    made.write()
    return made


def step(machine: Machine, meter: LoadMeter, wall_s: float = 1.0) -> Taken:
    """The program of a step uses 1.2 s of two cores, firefox 0.5 s, and what is left is idle."""
    meter.begin()
    machine.now_s += wall_s
    machine.busy_s += 1.7
    machine.set(KEEPER, ROCELAB, "keeper) (x", 0.5, waited_s=1.2)
    machine.set(OTHER, 1, "firefox", 50.5)
    machine.write()
    found = meter.end()
    assert found is not None
    return found


def test_what_is_neither_idle_nor_ours_is_others(machine: Machine) -> None:
    found = step(machine, machine.meter())
    assert found.others_cores == pytest.approx(0.5, abs=0.03)
    assert found.steal_cores == 0


def test_a_running_program_is_ours_before_its_wait_and_after(machine: Machine) -> None:
    meter = machine.meter()
    machine.set(PROGRAM, KEEPER, "ib_send_bw", 0.3)
    meter.begin()
    machine.now_s, machine.busy_s = 1.0, 0.7
    machine.end(PROGRAM)
    machine.set(KEEPER, ROCELAB, "keeper) (x", 0.5, waited_s=1.0)
    machine.write()
    found = meter.end()
    assert found is not None
    assert found.others_cores == pytest.approx(0.0, abs=0.03)


def test_time_that_the_hypervisor_keeps_is_not_others(machine: Machine) -> None:
    meter = machine.meter()
    meter.begin()
    machine.now_s, machine.steal_s = 1.0, 0.6
    machine.write()
    found = meter.end()
    assert found is not None
    assert found.others_cores == pytest.approx(0, abs=0.03)
    assert found.steal_cores == pytest.approx(0.6, abs=0.03)


@pytest.mark.parametrize("apart", [True, False])
def test_the_work_of_the_kernel_on_packets_is_ours(machine: Machine, apart: bool) -> None:
    """Where interrupts are counted apart, by their column; else by the thread that does their work."""
    meter = machine.meter(apart=apart)
    meter.begin()
    machine.now_s, machine.busy_s, machine.softirq_s = 1.0, 0.4, 0.4
    machine.set(SOFTIRQ, 2, "ksoftirqd/0", 3.4, flags=KERNEL)
    machine.write()
    found = meter.end()
    assert found is not None
    assert found.others_cores == pytest.approx(0, abs=0.03)


def test_a_short_step_is_judged_with_what_went_on_before_it(machine: Machine) -> None:
    meter = machine.meter()
    meter.begin()
    machine.now_s += 0.125
    machine.busy_s += 0.125
    machine.write()
    assert meter.end() is None, "ticks are too coarse, and nothing was before"
    for _ in range(3):
        meter.begin()
        machine.now_s += 0.125
        machine.busy_s += 0.125
        machine.write()
        found = meter.end()
    assert found is not None
    assert found.others_cores == pytest.approx(1.0, abs=0.1)


def test_nothing_is_said_where_the_system_does_not_tell(machine: Machine) -> None:
    (machine.root / "stat").write_text("cpu 1 2 3\n")
    meter = machine.meter()
    meter.begin()
    machine.now_s += 1
    assert meter.end() is None


def test_names_are_of_others_that_used_most_since_the_run_began(machine: Machine) -> None:
    meter = machine.meter()
    meter.note_names()
    machine.set(OTHER, 1, "firefox", 52.0)
    machine.set(201, 1, "cc1", 1.0)
    machine.set(PROGRAM, KEEPER, "ib_send_bw", 9.0)
    machine.now_s += NAMES_EVERY_S / 2
    meter.note_names()
    assert meter.top() == {}, "too early for another look"
    machine.now_s += NAMES_EVERY_S
    meter.note_names()
    assert meter.top() == {"firefox": 2.0, "cc1": 1.0}


def test_what_has_the_mark_of_a_run_is_ours_whoever_started_it(machine: Machine) -> None:
    meter = machine.meter()
    meter.mark = b"ROCELAB_RUN=abcd"
    rank = 4321
    machine.set(rank, OTHER, "rank", 0.0)
    for pid, environment in ((rank, b"HOME=/\0ROCELAB_RUN=abcd\0"), (OTHER, b"NOTE=ROCELAB_RUN=abcd\0")):
        (machine.root / str(pid) / "environ").write_bytes(environment)
    machine.write()
    meter.begin()
    machine.now_s += 1.0
    machine.busy_s += 1.0
    machine.set(rank, OTHER, "rank", 1.0)
    machine.write()
    found = meter.end()
    assert found is not None
    assert found.others_cores == pytest.approx(0.0, abs=0.03)
