"""Reads tables as MPI benchmarks print them: a heading that names the columns, then a line for each message size.

Headings are matched by their words and not by their place: columns come and go with options and versions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rocelab.tools.base import JobReading, JobRequest, Output, ToolError, Value, last_words

#: What stands in a column whose data was not right, in place of a number or besides.
_FAILED: Final = re.compile(r"\bfail", re.IGNORECASE)
_PASSED: Final = re.compile(r"\bpass", re.IGNORECASE)
_LINE: Final = re.compile(r"^\s*(\d+)((?:\s+\S+)+)\s*$")
_LINE_WITHOUT_SIZE: Final = re.compile(r"^()\s*((?:[\d.]+)(?:\s+\S+)*)\s*$")


@dataclass(frozen=True, slots=True)
class Column:
    """What a column holds. Without a metric it is read over."""

    metric: str | None = None
    unit: str = ""
    statistic: str = "mean"
    factor: float = 1.0
    check: bool = False
    """Says whether the data was right: Pass or Fail, or the number of wrong values."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a suite writes its tables."""

    heading: str
    """A regular expression that only the line with the names of the columns fits."""
    heading_without_sizes: str
    """The same for a table of a test without sizes, whose lines begin with the first column."""
    columns: Mapping[str, Column]
    """By a regular expression for the name, the longer names before those they contain."""


def read(text: str, dialect: Dialect, sizes_bytes: Sequence[int]) -> JobReading:
    """The values of the sizes that were asked for. A size that is there twice counts as it is the last time."""
    lines = _lines(text, re.compile(dialect.heading), _LINE, dialect)
    return _reading(line for line in lines if line[0] in sizes_bytes)


def read_without_sizes(text: str, dialect: Dialect) -> JobReading:
    """The values of a test without sizes, of the last line if there are many."""
    return _reading(_lines(text, re.compile(dialect.heading_without_sizes), _LINE_WITHOUT_SIZE, dialect))


def _reading(lines: Iterable[tuple[int | None, list[tuple[Column, str]]]]) -> JobReading:
    values: dict[int | None, tuple[Value, ...]] = {}
    errors: dict[int | None, str] = {}
    for size_bytes, cells in lines:
        wrong = next((cell for column, cell in cells if column.check and _is_wrong(cell)), None)
        if wrong is not None:
            errors[size_bytes] = f"the data that was received was not right: the program says {wrong!r}"
            values.pop(size_bytes, None)
            continue
        errors.pop(size_bytes, None)
        made = tuple(_value(column, cell) for column, cell in cells if column.metric is not None)
        if made:
            values[size_bytes] = made
    return JobReading(values, errors)


def check_not_empty(tool: str, request: JobRequest, reading: JobReading, output: Output) -> None:
    """ToolError where a program has said nothing that was asked for."""
    if not reading.values and not reading.errors:
        about = " about any size" if request.sizes_bytes else " that can be read"
        raise ToolError(f"{tool} printed nothing{about}: {last_words(output)}")


def _lines(
    text: str, heading: re.Pattern[str], form: re.Pattern[str], dialect: Dialect
) -> Iterator[tuple[int | None, list[tuple[Column, str]]]]:
    """Each line that is as long as the heading above it."""
    columns: list[Column] = []
    for line in text.splitlines():
        if heading.search(line):
            columns = _columns(line, dialect)
        elif (found := form.match(line)) is not None:
            cells = found[2].split()
            if len(cells) == len(columns):
                yield int(found[1]) if found[1] else None, list(zip(columns, cells, strict=True))


def _columns(line: str, dialect: Dialect) -> list[Column]:
    name = re.compile("|".join(f"({pattern})" for pattern in dialect.columns))
    known = list(dialect.columns.values())
    return [known[found.lastindex - 1] for found in name.finditer(line) if found.lastindex is not None]


def _is_wrong(cell: str) -> bool:
    if _FAILED.search(cell):
        return True
    return not _PASSED.search(cell) and _number(cell) not in {0.0, None}


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def _value(column: Column, cell: str) -> Value:
    assert column.metric is not None
    number = _number(cell)
    return Value(
        column.metric, column.unit, column.statistic, float("nan") if number is None else number * column.factor
    )
