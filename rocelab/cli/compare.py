"""``rocelab compare``: two runs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from rocelab.results import ResultsError, find_run


def compare(
    first: Annotated[str, typer.Argument(help="The run to compare with: folder, run id, unique part, or 'latest'.")],
    second: Annotated[str, typer.Argument(help="The run that is compared.")],
    results: Annotated[Path, typer.Option(help="Where runs are kept.")] = Path("results"),
    metric: Annotated[
        list[str] | None,
        typer.Option(help="Compare this metric instead of the main one of each test; may be repeated."),
    ] = None,
    every_size: Annotated[
        bool, typer.Option("--every-size", help="Show every message size, not only the series.")
    ] = False,
) -> None:
    """Say what is faster in the second run than in the first, by how much, and how sure that is."""
    # The drawing libraries take a while to load, and no other command should wait for them.
    from rocelab.report.difference import differences  # noqa: PLC0415
    from rocelab.report.model import RunModel  # noqa: PLC0415
    from rocelab.report.terminal import print_comparison  # noqa: PLC0415

    try:
        models = RunModel.of(find_run(results, first)), RunModel.of(find_run(results, second))
    except (ResultsError, OSError) as error:
        Console(stderr=True).print(f"rocelab compare: {error}", soft_wrap=True, markup=False, highlight=False)
        raise typer.Exit(1) from None
    found = differences(*models, metric or ())
    if metric and not found:
        known = sorted({sample.metric for sample in models[0].samples})
        Console(stderr=True).print(
            f"rocelab compare: the runs share no samples of {', '.join(metric)}; the first has: {', '.join(known)}",
            soft_wrap=True, markup=False, highlight=False,
        )  # fmt: skip
        raise typer.Exit(1)
    print_comparison(Console(), *models, found, every_size=every_size)
