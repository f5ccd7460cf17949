"""``rocelab bars``: a run of the study ``bars`` held against the bars."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from rocelab.results import ResultsError, find_run


def bars(
    run: Annotated[str, typer.Argument(help="The run: folder, run id, unique part, or 'latest'.")] = "latest",
    results: Annotated[Path, typer.Option(help="Where runs are kept.")] = Path("results"),
    sizes: Annotated[
        bool, typer.Option("--sizes", help="Show every size, and the TCP that it is held against.")
    ] = False,
) -> None:
    """Show Soft RoCE and iWARP against the best TCP, and each ratio that is to be reached beside its bar."""
    # The statistics take a while to load, and no other command should wait for them.
    from rocelab.report.bar_list import BARS  # noqa: PLC0415
    from rocelab.report.bars import held  # noqa: PLC0415
    from rocelab.report.model import RunModel  # noqa: PLC0415
    from rocelab.report.terminal import print_bars  # noqa: PLC0415

    try:
        model = RunModel.of(find_run(results, run))
    except (ResultsError, OSError) as error:
        Console(stderr=True).print(f"rocelab bars: {error}", soft_wrap=True, markup=False, highlight=False)
        raise typer.Exit(1) from None
    print_bars(Console(), model, held(model, BARS), every_size=sizes)
