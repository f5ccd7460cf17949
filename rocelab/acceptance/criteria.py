"""What an acceptance file may say: the study, where it runs, thresholds. docs/acceptance.md explains every key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from rocelab.results import PAIRS_LEVEL
from rocelab.study.loading import table_of
from rocelab.study.positions import line_of
from rocelab.study.problems import Problem, StudyError, dotted

Part = Annotated[float, Field(gt=0, le=1, strict=False)]
Bound = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=False)]

#: The keys of which a threshold has one or more.
BOUNDS: Final = ("at_least", "at_most", "at_least_of_rate", "within_of_median", "within_of_baseline")


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ThresholdTable(_Table):
    """`[[threshold]]`: which measurements, and what each of them has to be. What is left out, is any."""

    name: str | None = None
    """In reports; left out: made from the keys."""
    test: str
    level: str = "network"
    link: str | None = None
    interconnect: str | None = None
    variant: str | None = None
    size_bytes: Annotated[int, Field(ge=1)] | None = None
    metric: str | None = None
    """Left out: the one that the test is about."""
    at_least: Bound | None = None
    """In the unit of the metric."""
    at_most: Bound | None = None
    at_least_of_rate: Part | None = None
    """Part of the rate of the link."""
    within_of_median: Part | None = None
    """Of the median node, by how much a node may be worse: 0.1 is 10 %. For all pairs alone."""
    within_of_baseline: Part | None = None
    """Of the same measurement in the baseline."""

    @property
    def title(self) -> str:
        """What it is called."""
        if self.name is not None:
            return self.name
        parts = [self.link, self.interconnect, self.variant, None if self.level == "network" else self.level, self.test]
        return " ".join(part for part in parts if part)


class AcceptanceTable(_Table):
    """The whole file."""

    version: Literal[1] = Field(alias="schema")
    study: str
    """A study's name or file."""
    fabric: Literal["emulated", "hosts"] = "hosts"
    hosts: str | None = None
    """As for `rocelab run --hosts`."""
    baseline: str | None = None
    """A run to compare with: its id or its folder."""
    threshold: Annotated[list[ThresholdTable], Field(min_length=1)]


def load(path: Path) -> AcceptanceTable:
    """What is in a file. Raises StudyError with everything that is wrong in it."""
    table, text = table_of(path, AcceptanceTable)
    problems = [
        Problem(line_of(text, ("threshold", at)), dotted(("threshold", at)), words)
        for at, threshold in enumerate(table.threshold)
        for words in _wrong(table, threshold)
    ]
    if problems:
        raise StudyError(str(path), problems)
    return table


def _wrong(table: AcceptanceTable, threshold: ThresholdTable) -> Iterator[str]:
    if all(getattr(threshold, bound) is None for bound in BOUNDS):
        yield f"nothing is asked for; give one or more of: {', '.join(BOUNDS)}"
    if threshold.within_of_median is not None and threshold.level != PAIRS_LEVEL:
        yield f'within_of_median compares nodes: it is for level = "{PAIRS_LEVEL}"'
    if threshold.within_of_baseline is not None and table.baseline is None:
        yield "within_of_baseline needs a run to compare with: give `baseline`, at the top of the file"
