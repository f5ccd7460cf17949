"""Published series that predictions are held against. One file of ``validation/`` for each source.

They are kept apart from the claims: no claim reads them. A third of the sources is held out, drawn by a hash of their
names, so that a new source never moves an old one. Profiles are fitted to the others alone.
"""

from __future__ import annotations

import csv
import hashlib
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from statistics import median
from typing import Annotated, Literal

import pydantic

from rocelab.profiles.model import ProfileError

#: What the draw begins with. It was chosen once, before anything was fitted.
SEED = "rocelab validation 1"
#: One source in so many is held out.
_PART = 3

Unit = Literal["us", "MiB/s", "MB/s", "Gbps"]
#: 10^9 bit/s in a unit of bandwidth: perftest's MB is 2^20 bytes, OSU's 10^6.
GBPS: Mapping[Unit, float] = {"MiB/s": 8 * 2**20 / 1e9, "MB/s": 8e-3, "Gbps": 1.0}

Point = tuple[Annotated[int, pydantic.Field(gt=0)], Annotated[float, pydantic.Field(gt=0)]]


class _Data(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)


class Series(_Data):
    """One column of numbers against message size, and what it takes to predict it."""

    id: str
    grade: Literal["A", "B", "C"]
    """A: the set-up is stated and the run is clean. B: a fact or two are missing. C: its shape only."""
    why: str = ""
    """Of C: what is wrong with it."""
    tool: str
    metric: Literal["latency", "bandwidth"]
    operation: Literal["send", "write", "read"]
    both_ways: bool = False
    """Whether it is the sum of both directions at once."""
    unit: Unit
    column: str
    """Which column of the tool's output."""
    adapter: str
    host: str
    stack: str
    switch: str | None = None
    """Between the hosts; none: a cable, or what lies between does not count."""
    path_mtu_bytes: Literal[256, 512, 1024, 2048, 4096]
    inline_bytes: int | None = None
    """Where the source says another than the stack's."""
    points: Annotated[Sequence[Point], pydantic.Field(min_length=1)]
    """Message size in bytes, and the value in `unit`."""

    @pydantic.model_validator(mode="after")
    def _is_sound(self) -> Series:
        if (self.unit == "us") != (self.metric == "latency"):
            raise ValueError(f"{self.id}: a latency is in us, and a bandwidth is not")
        if (self.grade == "C") != bool(self.why):
            raise ValueError(f"{self.id}: `why` says what is wrong with a series of grade C, and with no other")
        sizes = [size for size, _ in self.points]
        if sizes != sorted(set(sizes)):
            raise ValueError(f"{self.id}: its sizes do not ascend")
        return self

    def judged(self, most: int | None = None) -> tuple[Point, ...]:
        """The points that are predicted, in us or 10^9 bit/s: of messages up to `most` bytes, if it is said."""
        factor = GBPS.get(self.unit, 1.0)
        return tuple((size, value * factor) for size, value in self.points if most is None or size <= most)


class Source(_Data):
    """A publication, and all that is taken from it."""

    id: str
    title: str
    address: str = ""
    """Where it is found; empty if only its title is known."""
    date: str = ""
    setup: Mapping[str, str]
    """What it says of its machines."""
    inferred: Sequence[str]
    """What it does not say, and we take for true."""
    series: Annotated[Sequence[Series], pydantic.Field(min_length=1)]

    @property
    def is_held_out(self) -> bool:
        """Whether nothing may be fitted to it."""
        return is_held_out(self.id)


def is_held_out(source: str) -> bool:
    """Whether the draw holds a source of that name out."""
    drawn = hashlib.sha256(f"{SEED}:{source}".encode()).digest()[:8]
    return int.from_bytes(drawn, "big") % _PART == 0


def read_source(text: str, name: str, where: str) -> Source:
    """The source in a text. Raises ProfileError, which says what is wrong in which file."""
    try:
        return Source.model_validate(tomllib.loads(text) | {"id": name})
    except tomllib.TOMLDecodeError as error:
        raise ProfileError(f"{where}: not valid TOML: {error}") from None
    except pydantic.ValidationError as error:
        wrong = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()]
        raise ProfileError(f"{where}: {'; '.join(wrong)}") from None


def read_sources(paths: Sequence[Path]) -> Mapping[str, Source]:
    """Sources in files of one's own, by their names. Raises ProfileError."""
    found = {}
    for path in paths:
        if path.stem in found:
            raise ProfileError(f"{path}: a source is called {path.stem} already; give the file another name")
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise ProfileError(f"{path}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise ProfileError(f"{path}: not UTF-8, so no text of this form") from None
        found[path.stem] = read_source(text, path.stem, str(path))
    return found


def middle_of_sources(errors: Iterable[tuple[str, float]]) -> tuple[float, int]:
    """The middle over sources of the middle error of their series, and how many sources they are.

    ``errors`` are names of sources with the error of one of their series each. Series of one source share its hosts and
    its adapters, so that many of them say little more than one.
    """
    of_sources: dict[str, list[float]] = {}
    for source, error in errors:
        of_sources.setdefault(source, []).append(error)
    return median(median(of_one) for of_one in of_sources.values()), len(of_sources)


def held_out_errors() -> Mapping[str, tuple[float, int]]:
    """By metric, the middle error of held-out sources, as a part, and how many they are.

    They are rows of ``errors.csv``, which ``rocelab validate --csv`` writes and a test compares.
    """
    text = resources.files("rocelab.profiles").joinpath("validation", "errors.csv").read_text(encoding="utf-8")
    found: dict[str, list[tuple[str, float]]] = {}
    for row in csv.DictReader(text.splitlines()):
        if row["part"] == "held out":
            found.setdefault(row["metric"], []).append((row["source"], float(row["median_error"])))
    return {metric: middle_of_sources(errors) for metric, errors in found.items()}


@cache
def sources() -> Mapping[str, Source]:
    """Every source by its id, which is the name of its file."""
    entries = resources.files("rocelab.profiles").joinpath("validation").iterdir()
    found = {}
    for entry in sorted(entries, key=lambda entry: entry.name):
        if entry.name.endswith(".toml"):
            name = entry.name.removesuffix(".toml")
            found[name] = read_source(entry.read_text(encoding="utf-8"), name, f"profiles/validation/{entry.name}")
    return found
