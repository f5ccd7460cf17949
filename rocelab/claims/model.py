"""Claims as they stand in ``data/*.toml``: one file per source, one entry per claim, with the rule that judges it."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable
from functools import cache
from importlib import resources
from typing import Any, Literal

import pydantic

from rocelab.claims.rules import Data, Gain, NoComparison, Part, Rule


class ClaimError(Exception):
    """A claim that does not exist, or claim data that is wrong."""


class Scale(Data):
    """How large something was in the source; a run may have it smaller, or larger."""

    what: str
    source: float = pydantic.Field(gt=0)
    unit: str = ""
    of: Literal["repetitions", "rate", "size", "ranks", "param"]
    """Where a run has it: how often it repeated, the rate of a link in 10^6 bit/s, the largest size in bytes, the most
    processes, or a parameter of samples."""
    name: str = ""
    """Of the link or the parameter."""
    test: str = ""
    """Of this test alone."""
    factor: float = pydantic.Field(default=1.0, gt=0)
    """From the run's unit to the source's."""


class AtLevel(Data):
    """How a claim is judged where a run has the level that the source measured at."""

    scales: tuple[Scale, ...] = ()
    stand_in: str
    rule_text: str
    rule: Rule
    by_construction: str = ""
    """As that of :class:`Claim`."""


class OtherReading(Data):
    """Another way to read a claim whose words have two meanings: judged and told, and no part of the verdict."""

    reading: str
    rule: NoComparison


class Source(Data):
    """Where claims come from."""

    id: str
    title: str
    testbed: str


class Claim(Data):
    """One claim: what was said, on what, and how this program decides about it."""

    id: str
    test: str
    """The program the source used."""
    text: str
    """The claim, in our words."""
    where: str
    """Section, figure, table or slide of the source."""
    reading: str
    """How its words are read, where they may be read in more than one way."""
    against: str
    """What would contradict it."""
    scales: tuple[Scale, ...] = ()
    stand_in: str
    """What is run here in place of the source's program, and how it differs."""
    rule_text: str
    """The rule in words, including every number in it that the source does not give."""
    rule: Rule
    mpi: AtLevel | None = None
    """Takes the place of the rule, where the run measured MPI."""
    virtual: AtLevel | None = None
    """Takes the place of both, where the run was simulated."""
    otherwise: tuple[OtherReading, ...] = ()
    by_construction: str = ""
    """What was put in, or chosen knowing the claim, so that the rule holds: where it does, that is no evidence."""
    source: Source


class FigureSeries(Data):
    """A line of a figure: the source's name for it, and what was run here in its place."""

    name: str
    interconnect: str
    variants: tuple[str, ...] = pydantic.Field(min_length=1)
    """The first of these that the run has."""
    link: str | None = None
    """Its link, where a figure has lines of several links. Else the figure is drawn for every link."""


class FigureGroup(Data):
    """A place on the axis of a figure that goes over tests and not over sizes."""

    name: str
    test: str
    metric: str


class SourceFigure(Data):
    """A figure of a source, so that it can be drawn again from a run: same axes, same names."""

    id: str
    title: str
    level: str
    test: str
    metric: str
    shown: Literal["value", "bandwidth"] = "value"
    """`bandwidth`: size over time in 10^6 bit/s, of a metric that is the time of a message in microseconds."""
    unit: str
    factor: float = 1.0
    """From the metric's unit to that of the figure."""
    x_title: str
    y_title: str
    log: bool = True
    text: str = ""
    """What is drawn here in place of what the source drew, where the figure has lines of several links."""
    series: tuple[FigureSeries, ...]
    groups: tuple[FigureGroup, ...] = ()
    """In place of the sizes of one test. Each of its lines names its link."""
    over_time: bool = False
    """A figure for each of its lines, which has a line for each node; a statistic is the node and the time."""
    source: Source

    @property
    def across_links(self) -> bool:
        """Whether its lines name their links."""
        return any(line.link is not None for line in self.series)


class TableColumn(Data):
    """A column of a table: the source's name for it, and what was run here in its place."""

    name: str
    interconnect: str
    variant: str


class TableRow(Data):
    """A row of a table: a test, with the source's values in the order of the columns."""

    name: str
    test: str
    values: tuple[float, ...]


class SourceTable(Data):
    """A table of a source, so that a run can be held beside it."""

    id: str
    title: str
    level: str
    metric: str
    unit: str
    nodes: int
    ranks: int
    columns: tuple[TableColumn, ...] = pydantic.Field(min_length=1)
    rows: tuple[TableRow, ...] = pydantic.Field(min_length=1)
    source: Source


class Improvement(Data):
    """A bar of a figure that sums a source up: by how many percent one network is better than another, at a level."""

    level: str
    """As the figure calls it."""
    pair: str
    percent: float
    """What the source says."""
    parts: tuple[Part, ...] = ()
    """How it is computed from a run: the largest of these, ..."""
    gain: Gain | None = None
    """... or this."""

    @pydantic.model_validator(mode="after")
    def _has_one_way(self) -> Improvement:
        if bool(self.parts) == (self.gain is not None):
            raise ValueError("an improvement has 'parts' or a 'gain', and not both")
        return self


class SummaryFigure(Data):
    """A figure that sums a source up: what each step from one network to another improves, at every level."""

    id: str
    title: str
    text: str
    """What is drawn here in place of what the source drew."""
    bars: tuple[Improvement, ...] = pydantic.Field(min_length=1)
    source: Source


def summaries_of(claims: Iterable[Claim]) -> tuple[SummaryFigure, ...]:
    """The figures that sum the sources of these claims up."""
    sources = {claim.source.id for claim in claims}
    return tuple(
        SummaryFigure.model_validate(entry | {"source": data["source"]})
        for data in _files()
        for entry in data.get("summary", [])
        if data["source"]["id"] in sources
    )


def tables_of(claims: Iterable[Claim]) -> tuple[SourceTable, ...]:
    """The tables of the sources of these claims."""
    sources = {claim.source.id for claim in claims}
    return tuple(
        SourceTable.model_validate(entry | {"source": data["source"]})
        for data in _files()
        for entry in data.get("table", [])
        if data["source"]["id"] in sources
    )


@cache
def all_figures() -> tuple[SourceFigure, ...]:
    """Every figure known, by source and in the order of the source."""
    return tuple(
        SourceFigure.model_validate(entry | {"source": data["source"]})
        for data in _files()
        for entry in data.get("figure", [])
    )


def figures_of(claims: Iterable[Claim]) -> tuple[SourceFigure, ...]:
    """The figures of the sources of these claims."""
    sources = {claim.source.id for claim in claims}
    return tuple(figure for figure in all_figures() if figure.source.id in sources)


@cache
def _files() -> tuple[dict[str, Any], ...]:
    folder = resources.files("rocelab.claims").joinpath("data")
    files = sorted(folder.iterdir(), key=lambda entry: entry.name)
    return tuple(tomllib.loads(file.read_text(encoding="utf-8")) for file in files if file.name.endswith(".toml"))


@cache
def all_claims() -> tuple[Claim, ...]:
    """Every claim known, by source and in the order of the source."""
    claims: list[Claim] = []
    for data in _files():
        claims += [Claim.model_validate(entry | {"source": data["source"]}) for entry in data["claim"]]
    ids = [claim.id for claim in claims]
    if len(ids) != len(set(ids)):
        raise ClaimError(f"claim ids are not unique: {sorted({each for each in ids if ids.count(each) > 1})}")
    return tuple(claims)


def claims_by_id(ids: Iterable[str]) -> tuple[Claim, ...]:
    """The claims with these ids, in this order; an unknown id is an error that suggests a known one."""
    known = {claim.id: claim for claim in all_claims()}
    found: list[Claim] = []
    for claim_id in ids:
        if claim_id not in known:
            close = difflib.get_close_matches(claim_id.upper(), known, 1, cutoff=0.5)
            hint = f" (did you mean {close[0]}?)" if close else ""
            raise ClaimError(f"no claim has the id {claim_id!r}{hint}; known: {', '.join(known)}")
        found.append(known[claim_id])
    return tuple(found)
