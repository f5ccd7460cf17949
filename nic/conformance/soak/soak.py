"""Runs every workload with every fault, again and again until the time is up, and says what became of each."""

from __future__ import annotations

import dataclasses
import itertools
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rocelab.fabric import emulated
from rocelab.fabric.base import Finished, LaunchError, LinkProfile, Running
from rocelab.launch import mpi
from rocelab.launch.namespace import NamespaceLauncher

from .faults import FAULTS, Fault
from .scene import LINK, Holding, Scene
from .workloads import WORKLOADS, Workload

NODES: Final = 4
LINK_MTU_BYTES: Final = 4200
#: How much longer than asked a run may take: to start 16 ranks, and to end.
PATIENCE_S: Final = 60.0
SAMPLE_S: Final = 0.2
#: What programs say of themselves when the network fails them.
ERROR: Final = re.compile(
    r"Failed status|Completion with error|Couldn't|Unable to|Failed to|exited on signal|PRTE|UCX +ERROR", re.IGNORECASE
)
#: Memory may grow so much between the middle of a run and its end: buffers that fill for the first
#: time.
GROWTH_SHARE: Final = 0.1
GROWTH_BYTES: Final = 32 << 20
SAMPLES_MIN: Final = 5
#: Of what a program said, what is shown.
SAID_CHARS: Final = 300


@dataclass(frozen=True, slots=True)
class Run:
    """What became of one run."""

    workload: str
    fault: str
    seconds: float
    outcome: str
    """`completed`, `error reported`, or what was wrong."""
    is_good: bool
    descriptors: int
    """Open at the end, of all its processes."""
    memory_mib: float


def available() -> list[Workload]:
    """The workloads whose programs are there."""
    kind, _ = mpi.transport("soft-roce", "openmpi-ucx")
    has_mpi = mpi.own(kind).mpiexec.exists()
    return [each for each in WORKLOADS if (has_mpi if each.is_mpi else shutil.which(each.argv[0]))]


def brief() -> list[tuple[Workload, Fault]]:
    """The short form: each fault once, with one workload or another, and some over the other transports, too."""
    workloads = available()
    found = []
    for transport in dict.fromkeys(workload.transport for workload in workloads):
        own = [workload for workload in workloads if workload.transport == transport]
        for at, fault in enumerate(fault for fault in FAULTS if transport in fault.briefly_over):
            # From another one on each time.
            fitting = [workload for workload in (*own[at % len(own) :], *own) if fits(workload, fault)]
            found += [(workload, fault) for workload in fitting[:1]]
    return found


def fits(workload: Workload, fault: Fault) -> bool:
    """Whether the fault makes sense for the workload."""
    return workload.transport in fault.over and (fault.for_mpi or not workload.is_mpi)


def pairs() -> Iterator[tuple[Workload, Fault]]:
    """Each workload with each fault that makes sense for it, over and over; the short form is first."""
    first = brief()
    whole = [(workload, fault) for fault in FAULTS for workload in available() if fits(workload, fault)]
    yield from first
    yield from itertools.cycle([pair for pair in whole if pair not in first] + first)


def soak(until_s: float, seconds: float, chosen: Iterator[tuple[Workload, Fault]]) -> Iterator[Run]:
    """The runs, of so many seconds each, one after the other, until the monotonic clock says so."""
    names = emulated.default_names(NODES)
    with emulated.up([LinkProfile(LINK, "bridge", mtu_bytes=LINK_MTU_BYTES)], names) as fabric:
        for workload, fault in chosen:
            if time.monotonic() >= until_s:
                return
            yield _run(fabric, workload, fault, seconds)


def _run(fabric: emulated.EmulatedFabric, workload: Workload, fault: Fault, seconds: float) -> Run:
    scene = Scene(fabric, NamespaceLauncher(fabric), workload.word, victim=fabric.nodes[1])
    started_s = time.monotonic()
    samples: list[Holding] = []
    problems = []
    try:
        losses = fault.loss_percent if workload.transport.over_tcp else 0.0
        with scene.losses(losses), workload.running(scene, fault, seconds) as programs:
            problems += _watch(scene, (workload, fault), programs, seconds, samples)
    except LaunchError as error:
        problems.append(str(error))
    finally:
        for extra in scene.started:
            extra.stop()
    problems += [*(growth(samples) if fault.survived else []), *scene.leftovers()]
    # The last look at all of its processes: some may have ended before others.
    end = max(reversed(samples), key=lambda sample: sample.processes, default=Holding(0, 0, 0))
    good = "completed" if fault.survived else "error reported"
    return Run(
        workload=workload.id,
        fault=fault.id,
        seconds=round(time.monotonic() - started_s, 1),
        outcome="; ".join(problems) or good,
        is_good=not problems,
        descriptors=end.descriptors,
        memory_mib=round(end.memory_bytes / 2**20, 1),
    )


def _watch(
    scene: Scene, pair: tuple[Workload, Fault], programs: Sequence[Running], seconds: float, samples: list[Holding]
) -> list[str]:
    """Do what the fault says while the program runs, and look at what it holds; what was wrong with its end."""
    workload, fault = pair
    deadline_s = time.monotonic() + seconds + fault.extra_s + PATIENCE_S
    begun_s = None
    has_acted = fault.act is None
    while programs[0].poll() is None and time.monotonic() < deadline_s:
        time.sleep(SAMPLE_S)
        if begun_s is None and workload.is_under_way(scene, programs):
            begun_s = time.monotonic()
        if begun_s is None or time.monotonic() - begun_s < seconds / 3:
            continue
        if not has_acted and fault.act is not None:
            has_acted = True
            fault.act(scene)
        samples.append(scene.holding())
    left_s = max(deadline_s - time.monotonic(), 0.0)
    ended = [program.wait(left_s) for program in programs]
    if not has_acted:
        return ["it had ended before anything could happen to it", *_problems(fault, ended)]
    return [*_problems(fault, ended)]


def _problems(fault: Fault, finished: Sequence[Finished]) -> Iterator[str]:
    first = finished[0]
    if any(each.timed_out for each in finished):
        yield "HANG: " + " | ".join(said(each) for each in finished)
    elif fault.survived:
        bad = [each for each in finished if each.exit_status != 0]
        if bad:
            yield f"exit status {bad[0].exit_status}: {said(bad[0])}"
    elif first.exit_status == 0:
        yield "ended well, although its peer was gone"
    elif not ERROR.search(first.stdout + first.stderr):
        yield f"no word of what was wrong: {said(first)}"


def said(program: Finished) -> str:
    """The first that it said of an error, or its last words."""
    text = program.stdout + program.stderr
    error = ERROR.search(text)
    start = text.rfind("\n", 0, error.start()) + 1 if error else max(len(text) - SAID_CHARS, 0)
    return text[start : start + SAID_CHARS]


def growth(samples: Sequence[Holding]) -> Iterator[str]:
    """What grew while the same processes did the same."""
    # What starts lazily has started by the middle. A short run has no middle to speak of.
    samples = samples[len(samples) // 2 :]
    if len(samples) < SAMPLES_MIN:
        return
    most = max(sample.processes for sample in samples)
    whole = [sample for sample in samples if sample.processes == most]
    first, last = whole[0], whole[-1]
    # perftest opens a file of /proc for a moment as it ends.
    descriptors = min(sample.descriptors for sample in whole[-2:])
    # A thread that polls keeps one more from when others want its processor for the first time.
    if descriptors > first.descriptors + most:
        yield f"descriptors grew from {first.descriptors} to {descriptors}"
    if last.memory_bytes > first.memory_bytes * (1 + GROWTH_SHARE) + GROWTH_BYTES:
        yield f"memory grew from {first.memory_bytes >> 20} to {last.memory_bytes >> 20} MiB"


def as_dict(run: Run) -> dict[str, object]:
    """For the result file."""
    return dataclasses.asdict(run)
