"""``rocelab validate``: the simulator held against published series."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from rocelab.profiles import ProfileError
from rocelab.stats import text
from rocelab.tools.base import ToolError

if TYPE_CHECKING:
    from rocelab.virtual.validation import Held

#: What the rows of `--csv` hold.
COLUMNS = (
    "part",
    "source",
    "series",
    "grade",
    "metric",
    "sizes",
    "within_10_percent",
    "within_20_percent",
    "plain_error",
    "median_error",
    "worst_error",
    "worst_bytes",
)


def validate(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Series of your own, in the form of rocelab/profiles/validation. Default: those of rocelab."
        ),
    ] = None,
    figure: Annotated[Path | None, typer.Option("--figure", help="Draw predicted over published as SVG.")] = None,
    rows: Annotated[Path | None, typer.Option("--csv", help="Write a row for each series.")] = None,
) -> None:
    """Predict published series of latency and bandwidth, and say by how much each prediction is wrong."""
    from rocelab.profiles.series import read_sources, sources  # noqa: PLC0415
    from rocelab.virtual.validation import bounds, hold  # noqa: PLC0415

    try:
        held = hold(list((read_sources(files) if files else sources()).values()))
        if figure is not None:
            _draw(held, figure)
        if rows is not None:
            with rows.open("w", encoding="utf-8", newline="") as file:
                write_rows(held, file)
    except (ProfileError, ToolError, OSError) as error:
        Console(stderr=True).print(f"rocelab validate: {error}", soft_wrap=True, markup=False, highlight=False)
        raise typer.Exit(1) from None
    console = Console()
    print_series(console, held)
    for bound in bounds(held):
        count = f"{text.plural(bound.sources, 'source')}, {text.plural(bound.series, 'series', 'series')}"
        errors = (
            f"median {bound.median_error:.0%}, {bound.within_10:.0%} of sizes within 10 %, "
            f"worst {bound.worst_error:.0%}"
        )
        console.print(f"{bound.metric}, {bound.part} ({count}): {errors}", highlight=False)


def print_series(console: Console, held: Sequence[Held]) -> None:
    """A line for each series, those that nothing was fitted to first."""
    table = Table(box=None, pad_edge=False)
    for head, right in (("series", False), ("part", False), ("median", True), ("worst", True), ("at, bytes", True)):
        table.add_column(head, justify="right" if right else "left", overflow="fold")
    for each in _sorted(held):
        table.add_row(
            each.series.id,
            each.part,
            f"{each.median_error:.0%}",
            f"{each.worst.error:+.0%}",
            str(each.worst.size_bytes),
        )
    console.print(table)


def _sorted(held: Sequence[Held]) -> list[Held]:
    order = ("held out", "fitted", "shape only")
    return sorted(held, key=lambda each: (order.index(each.part), each.series.metric, each.series.id))


def write_rows(held: Sequence[Held], file: IO[str]) -> None:
    """The rows of `--csv`, errors as parts of the published value."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(_rows(held))


def _rows(held: Sequence[Held]) -> Iterator[Sequence[object]]:
    for each in _sorted(held):
        series, worst = each.series, each.worst
        errors = f"{each.median_error:.3f}", f"{worst.error:+.3f}"
        yield (
            each.part,
            each.source.id,
            series.id,
            series.grade,
            series.metric,
            len(each.points),
            each.within(10),
            each.within(20),
            "" if each.plain_error is None else f"{each.plain_error:.3f}",
            *errors,
            worst.size_bytes,
        )


def _draw(held: Sequence[Held], path: Path) -> None:
    # Drawing takes a while to load, and the table should not wait for it.
    from rocelab.report.render import svg  # noqa: PLC0415
    from rocelab.report.validation_figure import validation_figure  # noqa: PLC0415

    points = [
        {
            "part": each.part,
            "metric": each.series.metric,
            "series": each.series.id,
            "size_bytes": point.size_bytes,
            "ratio": point.predicted / point.published,
        }
        for each in held
        if each.part != "shape only"
        for point in each.points
    ]
    path.write_text(svg(validation_figure(points)), encoding="utf-8")
