"""``rocelab report``: makes the report of a run again, without running anything."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from rocelab.results import ResultsError, find_run


def report(
    run: Annotated[str, typer.Argument(help="A run folder, a run id or a unique part of one, or 'latest'.")] = "latest",
    results: Annotated[Path, typer.Option(help="Where runs are kept.")] = Path("results"),
    output: Annotated[
        Path | None, typer.Option(help="Where to write the report; the default is report/ in the folder of the run.")
    ] = None,
    beside: Annotated[
        str | None, typer.Option(help="Another run, whose series are shown in the same figures: a simulated one, say.")
    ] = None,
) -> None:
    """Write the report of a run: an HTML page, its figures as SVG and PNG, and a summary as CSV."""
    # The drawing libraries take a while to load, and no other command should wait for them.
    from rocelab.claims import ClaimError  # noqa: PLC0415
    from rocelab.report.model import RunModel  # noqa: PLC0415
    from rocelab.report.terminal import print_summary  # noqa: PLC0415
    from rocelab.report.write import write_report  # noqa: PLC0415

    errors = Console(stderr=True)
    try:
        store = find_run(results, run)
        other = None if beside is None else find_run(results, beside)
        with errors.status("reading") as status:
            files = write_report(store, output, beside=other, progress=status.update)
        print_summary(Console(), RunModel.of(store, other), files.page)
    except (ResultsError, ClaimError, OSError) as error:
        errors.print(f"rocelab report: {error}", soft_wrap=True, markup=False, highlight=False)
        raise typer.Exit(1) from None
