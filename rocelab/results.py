"""Samples and the folder of a run: what every benchmark writes and every report reads.

A run folder holds ``run.json`` (what was asked for, where and with what), ``study.toml`` (a verbatim
copy of the study), ``samples.ndjson`` (one :class:`Sample` a line, written as it is measured), ``logs/``
and ``report/``. pandas, polars and DuckDB read ``samples.ndjson`` as it is.
"""

from __future__ import annotations

import dataclasses
import json
import lzma
import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, TypeVar, get_args

import pydantic

import rocelab
from rocelab.load import Load

SCHEMA_VERSION = 1
"""Version of the sample format. It changes when a field changes its meaning, not when one is added."""

READABLE_VERSIONS = range(1, SCHEMA_VERSION + 1)
"""Versions that are read: all that there ever were. Fields that came later have a default."""
ParamValue = str | int | float | bool
RunStatus = Literal["running", "complete", "incomplete", "interrupted"]
"""``incomplete``: it ended, and some steps failed or a time budget had no room for them. ``running`` although no
process writes it: it crashed."""

MESH_TEST = "mesh"
"""From each node to every other at the same time, at any level."""
EVENTS_METRIC = "events_"
"""How metrics begin that count what happened to packets; ``lost``, ``paused``, ``marked`` or ``resent`` follows."""
DROPPED_PARAM = "dropped_packets"
"""The parameter of samples that says how many packets their link dropped on purpose meanwhile."""
PAIRS_LEVEL = "pairs"
"""The level whose samples are of a pair of nodes each: ``client`` and ``server`` among their parameters."""
FLOWS_LEVEL = "flows"
"""The level whose samples are of flows that arrive at random: by the greatest size of a bin of flows, or of all."""
SLOWDOWN_METRIC = "slowdown"
"""How many times as long flows take as alone on the empty network."""
SHARING_TEST = "sharing"
"""Flows of several kinds at the same time on one link, at the level network: each mix is a variant."""
SIDE_BY_SIDE_TEST = "side-by-side"
"""Pairs of programs at the same time between two nodes, at the level network. What of it a machine has too few
processors for is left out, with a note of the run that begins with this name."""
PAIR_METRIC = "pair_mbps"
"""Of pairs side by side: what one had."""
QUEUE_PAIRS_SETTING = "queue_pairs"
"""Of programs side by side that are one program with so many queue pairs: the setting in the variant that says it."""
FLOW_METRIC, QUEUE_METRIC, QUEUE_LOST_METRIC = "flow_mbps", "round_trip_ms", "round_trips_lost_percent"
"""Of a mix: what each flow had; what datagrams met that another node sent meanwhile."""

_NETWORK_OVER_NODES = frozenset({"incast", "bisection", "permutation"})
_RUN_FILE = "run.json"
_STUDY_FILE = "study.toml"
_SAMPLES_FILE = "samples.ndjson"
_PACKED_FILE = "samples.ndjson.xz"
"""The samples of a run that is kept with the documents."""
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def runs_over_nodes(level: str, test: str) -> bool:
    """Whether the samples of a test run over the number of nodes, and not over the size of messages."""
    return test == MESH_TEST or (level == "network" and test in _NETWORK_OVER_NODES)


class ResultsError(Exception):
    """A run folder or a sample that cannot be used; the text says which, where and what to do."""


class StepKey(NamedTuple):
    """Identifies one step of a plan: the samples of all its metrics share it."""

    link: str
    interconnect: str
    level: str
    test: str
    variant: str
    size_bytes: int | None
    repetition: int
    nodes: int = 2
    ranks: int = 2
    part: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured value, not an average over repetitions. A failed step is one sample without value."""

    study: str
    run: str
    fabric: str
    link: str
    """Link profile id, such as ``direct`` or ``ethernet-1g``."""
    interconnect: str
    level: str
    test: str
    variant: str
    """What exactly was run: ``send``, ``write``, ``read`` or ``blocking``, ``busy-poll``."""
    size_bytes: int | None
    params: Mapping[str, ParamValue]
    """Everything else that was chosen or noted; never a part of the step's identity."""
    metric: str
    unit: str
    statistic: str
    """How the tool made this value from its iterations: ``median``, ``mean``, ``p99``, ..."""
    value: float | None
    """Finite, in ``unit``; None if and only if the step failed."""
    repetition: int
    ok: bool
    """The run passed its own correctness check."""
    error: str | None
    """For a person: why it failed."""
    tool: str
    tool_version: str
    command: str
    started_at: str
    """ISO 8601, UTC."""
    duration_s: float
    log: str | None
    """Path inside the run folder of the raw output of both ends."""
    order: int
    """Position in the interleaved order that was executed."""
    schema_version: int = SCHEMA_VERSION
    nodes: int = 2
    """How many nodes took part."""
    ranks: int = 2
    """How many processes took part: of the network level, a client and a server."""
    part: int = 0
    """Which part of a test that is measured in parts, such as the rounds of all pairs."""

    def __post_init__(self) -> None:
        if self.ok and (self.value is None or not math.isfinite(self.value)):
            raise ResultsError(f"a sample that is ok needs a finite value, got {self.value!r} ({self.key})")
        if not self.ok and (self.value is not None or not self.error):
            raise ResultsError(f"a failed sample has no value and says why in 'error' ({self.key})")

    @property
    def key(self) -> StepKey:
        """The step this sample belongs to."""
        return StepKey(
            self.link,
            self.interconnect,
            self.level,
            self.test,
            self.variant,
            self.size_bytes,
            self.repetition,
            self.nodes,
            self.ranks,
            self.part,
        )


@dataclass(frozen=True, slots=True)
class LinkInfo:
    """A link profile as it was built."""

    id: str
    kind: str
    mtu_bytes: int
    rate_mbps: float | None = None
    """Shaped to this rate in 10^6 bit/s; None: as fast as the machine moves packets."""
    queue_bytes: int | None = None
    switch_queue_bytes: int | None = None
    nodes_per_switch: int | None = None
    """Of a two-level link: how many nodes each access switch has."""
    uplink_rate_mbps: float | None = None
    """Of a two-level link: what the cable between an access switch and the spine is shaped to."""
    gso_max_bytes: int | None = None
    """How much TCP was allowed to hand to a cable at once; None: as the kernel has it."""
    loss_percent: float | None = None
    """Of the packets that nodes send, how many were dropped on purpose; None: none, and not packet by packet."""
    ecn_percent: float | None = None
    """From which percentage of a port's rate on its switch marked packets; None: it marked none."""
    facts: Mapping[str, ParamValue] = field(default_factory=dict)
    """Of the first node's interface, as the kernel reports it once the link is up; empty where it was not asked."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where and with what a run was made. Unknown values are None and are shown as unknown."""

    machine: str
    """Architecture and, where it is known, the kind of machine: ``x86_64 (KVM guest)``."""
    cpu_model: str
    cores: int
    memory_bytes: int
    kernel: str
    distribution: str
    command: str
    """The rocelab command line."""
    rocelab_version: str
    python_version: str
    urxe_version: str | None = None
    git_commit: str | None = None
    git_dirty: bool | None = None
    tools: Mapping[str, str] = field(default_factory=dict)
    """Benchmark program (or its package) to version."""
    notes: tuple[str, ...] = ()
    """What a reader should know: busy cores, missing privileges, a governor that is not 'performance'."""
    governor: str | None = None
    """Of the CPU frequency; several are listed. None where the machine has none, as most virtual ones."""
    network: Mapping[str, ParamValue] = field(default_factory=dict)
    """Settings that change what TCP and UDP reach, by the names of sysctl, and what programs on a node may do."""


@dataclass(frozen=True, slots=True)
class RunInfo:
    """The content of ``run.json``."""

    id: str
    study: str
    title: str
    fabric: str
    status: RunStatus
    started_at: str
    seed: int
    repetitions: int
    links: tuple[LinkInfo, ...]
    provenance: Provenance
    planned_steps: int
    claims: tuple[str, ...] = ()
    ended_at: str | None = None
    schema_version: int = SCHEMA_VERSION
    budget_minutes: float | None = None
    """Wall time that the run was given; None: as long as its plan takes."""
    load: Load | None = None
    """What others took of the processors meanwhile; None of a run that did not look, or has not ended."""
    chosen_repetitions: int | None = None
    """Repetitions of the first pass where they are not the study's: asked for, or what fits the budget."""
    hosts: str | None = None
    """How the hosts were named: a list, or the path of a file. None: they were found, or there are none."""
    folder: str | None = None
    """Where the programs or files are that a study brings itself; None of a study without."""

    def link(self, link_id: str) -> LinkInfo | None:
        """The link profile with this id, if the run has it."""
        return next((link for link in self.links if link.id == link_id), None)


_SAMPLE = pydantic.TypeAdapter(Sample)
_RUN_INFO = pydantic.TypeAdapter(RunInfo)
_Parsed = TypeVar("_Parsed", Sample, RunInfo)


def sample_schema() -> dict[str, Any]:
    """The JSON schema of one line of ``samples.ndjson``; committed as ``schemas/sample.v1.json``."""
    schema = _SAMPLE.json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = f"rocelab sample, version {SCHEMA_VERSION}"
    return schema


def parse_sample(line: str | bytes) -> Sample:
    """Reads one line; raises :class:`ResultsError` that names the field which is wrong."""
    return _parse(_SAMPLE, line)


def _parse(adapter: pydantic.TypeAdapter[_Parsed], text: str | bytes) -> _Parsed:
    # Fields we do not know are passed over: a newer writer may add some without a new version.
    try:
        parsed = adapter.validate_json(text, strict=True)
    except pydantic.ValidationError as error:
        _check_version(*_version_of(text))
        problems = (
            f"{'.'.join(str(part) for part in detail['loc']) or 'the whole'}: {detail['msg']}"
            for detail in error.errors()
        )
        raise ResultsError("; ".join(problems)) from None
    if parsed.schema_version not in READABLE_VERSIONS:
        _check_version(*_version_of(text))
    return parsed


def _check_version(version: int | None, writer: str | None = None) -> None:
    if version is None or version in READABLE_VERSIONS:
        return
    readable = ", ".join(map(str, READABLE_VERSIONS))
    by = "" if writer is None else f" by rocelab {writer}"
    raise ResultsError(
        f"written{by} in format version {version}, and this rocelab ({rocelab.__version__}) reads {readable}: use a"
        " newer rocelab, the one that wrote it or a later one"
    )


def _version_of(text: str | bytes) -> tuple[int | None, str | None]:
    """The version of the format, and of the rocelab that wrote it, as far as they can be made out."""
    try:
        raw = json.loads(text)
    except ValueError:
        return None, None
    if not isinstance(raw, dict):
        return None, None
    version, provenance = raw.get("schema_version"), raw.get("provenance")
    writer = provenance.get("rocelab_version") if isinstance(provenance, dict) else None
    return version if isinstance(version, int) else None, writer if isinstance(writer, str) else None


def sample_line(sample: Sample) -> bytes:
    """A line of ``samples.ndjson``."""
    text = json.dumps(_SAMPLE.dump_python(sample, mode="json"), ensure_ascii=False, allow_nan=False)
    return text.encode() + b"\n"


class RunStore:
    """The folder of one run. One process writes it; any number may read it meanwhile."""

    def __init__(self, path: Path, info: RunInfo) -> None:
        """Use :meth:`create` or :meth:`open`."""
        self.path = path
        self.info = info
        self._fd: int | None = None

    @classmethod
    def create(cls, root: Path, info: RunInfo, study_text: str) -> Self:
        """Makes ``root/<run id>/``; fails if it is there already."""
        if not _RUN_ID.fullmatch(info.id):
            raise ResultsError(f"run id {info.id!r}: letters, digits, '.', '_' and '-' only")
        path = root / info.id
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            raise ResultsError(f"{path} is there already; a run never overwrites another") from None
        (path / "logs").mkdir()
        (path / _STUDY_FILE).write_text(study_text, encoding="utf-8")
        (path / _SAMPLES_FILE).touch()
        store = cls(path, info)
        store._write_info()
        return store

    @classmethod
    def open(cls, path: Path) -> Self:
        """Opens a run folder for reading, or for going on with it."""
        try:
            text = (path / _RUN_FILE).read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError):
            raise ResultsError(f"{path} is not a run folder: it has no {_RUN_FILE}") from None
        try:
            return cls(path, _parse(_RUN_INFO, text))
        except ResultsError as error:
            raise ResultsError(f"{path / _RUN_FILE}: {error}") from None

    @property
    def logs(self) -> Path:
        """Where the raw output of the programs goes."""
        return self.path / "logs"

    @property
    def report(self) -> Path:
        """Where the report goes; made by the code that writes it."""
        return self.path / "report"

    def study_text(self) -> str:
        """The study as it was run."""
        return (self.path / _STUDY_FILE).read_text(encoding="utf-8")

    def append(self, *samples: Sample) -> None:
        """Writes all samples of a step in one go, so that a crash leaves all of them or none."""
        if self._fd is None:
            self._fd = self._open_for_append()
        data = b"".join(map(sample_line, samples))
        while data:
            data = data[os.write(self._fd, data) :]

    def close(self) -> None:
        """Closes the samples file; appending opens it again."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def set_status(self, status: RunStatus, *, ended_at: str | None = None) -> None:
        """Records how far the run got."""
        if status not in get_args(RunStatus):
            raise ResultsError(f"status {status!r}: one of {', '.join(get_args(RunStatus))}")
        self.note(status=status, ended_at=ended_at)

    def note(self, **changes: Any) -> None:
        """Records fields of the run that have changed."""
        self.info = dataclasses.replace(self.info, **changes)
        self._write_info()

    def keep(self, path: Path) -> None:
        """Writes what can be judged of the run into a small folder that reads as a run: no logs, samples packed.

        Programs are named without the folders that they had on the machine of the run.
        """
        path.mkdir(parents=True, exist_ok=True)
        (path / _STUDY_FILE).write_text(self.study_text(), encoding="utf-8")
        provenance = dataclasses.replace(
            self.info.provenance,
            command=_without_folders(self.info.provenance.command),
            tools={name: version.partition(", /")[0] for name, version in self.info.provenance.tools.items()},
        )
        info = dataclasses.replace(self.info, provenance=provenance, folder=None)
        text = json.dumps(_RUN_INFO.dump_python(info, mode="json"), indent=2, ensure_ascii=False)
        (path / _RUN_FILE).write_text(text + "\n", encoding="utf-8")
        lines = (
            sample_line(dataclasses.replace(sample, log=None, command=_without_folders(sample.command)))
            for sample in self.current_samples()
        )
        (path / _PACKED_FILE).write_bytes(lzma.compress(b"".join(lines), preset=9 | lzma.PRESET_EXTREME))

    def samples(self) -> list[Sample]:
        """Every sample that was written, in order. A last line cut short by a crash is left out."""
        return list(self._read())

    def current_samples(self) -> list[Sample]:
        """Like :meth:`samples`, but of a step that was repeated by a resume only the last attempt."""
        last_order: dict[StepKey, int] = {}
        every = self.samples()
        for sample in every:
            last_order[sample.key] = sample.order
        return [sample for sample in every if sample.order == last_order[sample.key]]

    def done_keys(self) -> set[StepKey]:
        """The steps whose last attempt succeeded: what a resume need not repeat."""
        done: dict[StepKey, bool] = {}
        for sample in self.current_samples():
            done[sample.key] = done.get(sample.key, True) and sample.ok
        return {key for key, ok in done.items() if ok}

    def next_order(self) -> int:
        """The ``order`` of the next step, larger than every one so far."""
        return max((sample.order for sample in self._read()), default=-1) + 1

    def _read(self) -> Iterator[Sample]:
        path = self.path / _SAMPLES_FILE
        packed = self.path / _PACKED_FILE
        data = lzma.decompress(packed.read_bytes()) if packed.exists() else path.read_bytes()
        lines = data.split(b"\n")
        # What follows the last newline is empty, or the line a crash cut short.
        for number, line in enumerate(lines[:-1], start=1):
            try:
                yield parse_sample(line)
            except ResultsError as error:
                raise ResultsError(f"{path}, line {number}: {error}") from None

    def _open_for_append(self) -> int:
        fd = os.open(self.path / _SAMPLES_FILE, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        content = os.pread(fd, os.fstat(fd).st_size, 0)
        # Going on behind half a line would spoil the next sample too.
        os.ftruncate(fd, content.rfind(b"\n") + 1)
        return fd

    def _write_info(self) -> None:
        data = _RUN_INFO.dump_python(self.info, mode="json")
        temporary = self.path / (_RUN_FILE + ".new")
        temporary.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        temporary.replace(self.path / _RUN_FILE)


_FOLDERS = re.compile(r"(?<![\w./])(?:/[\w.+@-]+)+/(?=[\w.+@-])")
"""The folders of an absolute path, where a word of a command line begins with one."""


def _without_folders(command: str) -> str:
    return _FOLDERS.sub("", command)


def list_runs(root: Path) -> list[RunStore]:
    """The runs below ``root``, oldest first; folders that are not runs are passed over."""
    if not root.is_dir():
        return []
    stores = [RunStore.open(path) for path in root.iterdir() if (path / _RUN_FILE).is_file()]
    return sorted(stores, key=lambda store: (store.info.started_at, store.info.id))


def find_run(root: Path, name: str) -> RunStore:
    """The run that a person means: a folder, a run id, the start or end of one that is unique, or ``latest``."""
    as_path = Path(name)
    if (as_path / _RUN_FILE).is_file():
        return RunStore.open(as_path)
    if _RUN_ID.fullmatch(name) and (root / name / _RUN_FILE).is_file():
        # Whatever is wrong with another run.
        return RunStore.open(root / name)
    runs = list_runs(root)
    if not runs:
        raise ResultsError(f"no runs in {root}: 'rocelab run STUDY' makes one, --results says where to look")
    if name == "latest":
        return runs[-1]
    exact = [run for run in runs if run.info.id == name]
    matching = exact or [run for run in runs if run.info.id.startswith(name) or run.info.id.endswith(name)]
    if len(matching) == 1:
        return matching[0]
    shown = ", ".join(run.info.id for run in (matching or runs)[-5:])
    if matching:
        raise ResultsError(f"{name!r} fits {len(matching)} runs: {shown}; say more of the id")
    raise ResultsError(f"no run {name!r} in {root}; the last ones are: {shown}")
