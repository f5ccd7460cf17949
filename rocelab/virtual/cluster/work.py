"""What a worker of a cluster does: carries out a step as a run on its own machine would, and gives all of it back.

Nothing is taken from a file system that the machines might share: logs come back with the samples.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import platform
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

import rocelab
from rocelab.results import RunInfo, RunStore, Sample
from rocelab.study.provenance import tool_versions
from rocelab.virtual.runner import AnyStep, VirtualRunner


@dataclass(frozen=True, slots=True)
class Point:
    """A step, and all that a worker has to know besides."""

    step: AnyStep
    order: int
    info: RunInfo
    versions: Mapping[str, str]
    code: str
    """The digest of the code and the profiles that the step is planned with."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a point."""

    samples: tuple[Sample, ...]
    error: str | None
    logs: Mapping[str, bytes]
    """By their names in the folder of logs."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a worker says of itself."""

    host: str
    code: str
    missing: tuple[str, ...]
    """A line for each program that it lacks, with what to do."""
    tools: Mapping[str, str]
    """The version of every program."""
    available_bytes: int


class OtherCodeError(Exception):
    """A worker whose code or profiles are others: what it simulates would be something else."""


@functools.cache
def code() -> str:
    """A digest of rocelab's code, profiles and claims, without its tests."""
    root = Path(rocelab.__file__).parent
    files = sorted(path for kind in ("py", "toml", "csv") for path in root.rglob(f"*.{kind}"))
    found = hashlib.sha256()
    for path in files:
        name = path.relative_to(root)
        if "tests" not in name.parts:
            found.update(f"{name}\0".encode() + path.read_bytes() + b"\0")
    return found.hexdigest()[:16]


def facts(steps: Sequence[AnyStep]) -> Facts:
    """What this machine has for the steps."""
    executables = {executable.name: executable for step in steps for executable in step.executables}
    missing = [each for each in executables.values() if each.path is None]
    return Facts(
        host=platform.node(),
        code=code(),
        missing=tuple(f"{Path(each.name).name}: {each.advice}" for each in missing),
        tools={} if missing else tool_versions(steps),
        available_bytes=psutil.virtual_memory().available,
    )


class _Run:
    """A run as this worker has it: in a folder of its own, until it ends."""

    def __init__(self, info: RunInfo, versions: Mapping[str, str]) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="rocelab-", ignore_cleanup_errors=True)
        self.store = RunStore.create(Path(self.folder.name), info, "")
        self.runner = VirtualRunner(self.store, None, versions, memory=_one_at_a_time)


_runs: dict[str, _Run] = {}
_lock = threading.Lock()


def perform(point: Point) -> Answer:
    """Carry out a point. Raises OtherCodeError."""
    if code() != point.code:
        raise OtherCodeError(f"rocelab of {platform.node()} has other code or profiles, though it has the same version")
    with _lock:
        if point.info.id not in _runs:
            _runs[point.info.id] = _Run(point.info, point.versions)
        run = _runs[point.info.id]
    samples, error = run.runner.perform(point.step, point.order)
    logs = {}
    for path in run.store.logs.glob(f"{point.order:05}-*"):
        logs[path.name] = path.read_bytes()
        path.unlink()
    return Answer(samples, error, logs)


def end(run: str) -> None:
    """End what is under way of a run, and leave nothing of it behind."""
    with _lock:
        ended = _runs.pop(run, None)
    if ended is not None:
        ended.runner.stop()
        ended.folder.cleanup()


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Has the memory of this machine to itself, among all its workers."""
    path = Path(tempfile.gettempdir(), f"rocelab-memory-{os.getuid()}")
    with path.open("w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
