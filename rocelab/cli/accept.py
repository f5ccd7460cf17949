"""``rocelab accept``: runs a study and holds it against thresholds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from rocelab.cli.problems import fail, say
from rocelab.cli.run import EXIT_FAILED_SAMPLES, measure
from rocelab.fabric.base import FabricError, LaunchError
from rocelab.results import ResultsError, RunStore, find_run
from rocelab.stats import text
from rocelab.study.problems import StudyError

if TYPE_CHECKING:
    from rocelab.acceptance.criteria import AcceptanceTable

#: So many violations are listed; the files have all.
_LISTED_MAX = 40


def accept(  # noqa: PLR0917, typer makes an option of each
    criteria: Annotated[Path, typer.Argument(help="The acceptance file (docs/acceptance.md).", metavar="FILE")],
    run: Annotated[
        str | None, typer.Option(help="Judge this run, and measure nothing: its id, a part of it, or 'latest'.")
    ] = None,
    results: Annotated[Path, typer.Option(help="Where runs are kept.")] = Path("results"),
    without: Annotated[str | None, typer.Option(help="Hosts to leave out, as a list.", metavar="HOSTS")] = None,
    stage: Annotated[
        bool, typer.Option("--stage", help="Copy rocelab's own programs to hosts without them, for the run.")
    ] = False,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML there, for a CI system.")] = None,
    as_json: Annotated[Path | None, typer.Option("--json", help="Write JSON there.")] = None,
    prometheus: Annotated[
        Path | None, typer.Option(help="Write text for Prometheus there, such as DIRECTORY/rocelab.prom.")
    ] = None,
) -> None:
    """Run a study and say whether its measurements are within the bounds of a file.

    Exit status: 0 all are; 1 wrong use; 3 some are not, or are missing; 130 interrupted.
    """
    # The statistics take a while to load, and no other command should wait for them.
    from rocelab.acceptance import formats  # noqa: PLC0415
    from rocelab.acceptance.criteria import load  # noqa: PLC0415
    from rocelab.acceptance.judging import checks  # noqa: PLC0415

    try:
        table = load(criteria)
        baseline = None if table.baseline is None else find_run(results, table.baseline)
        store = _measured(table, results, without, stage=stage) if run is None else find_run(results, run)
        samples = store.current_samples()
        made = checks(table.threshold, store.info, samples, [] if baseline is None else baseline.current_samples())
        for path, form in ((junit, formats.junit), (as_json, formats.as_json), (prometheus, formats.prometheus)):
            if path is not None:
                _write(path, form(made, store.info))
    except StudyError as error:
        fail("accept", f"the file cannot be used:\n{error}")
    except (FabricError, LaunchError, ResultsError, OSError) as error:
        fail("accept", error)
    wrong = formats.violations(made)
    console = Console(soft_wrap=True, highlight=False, markup=False)
    for line in wrong[:_LISTED_MAX]:
        console.print(line)
    if len(wrong) > _LISTED_MAX:
        console.print(f"... and {len(wrong) - _LISTED_MAX} more; --json and --junit write all.")
    verdict = "Not accepted" if wrong else "Accepted"
    console.print(f"{verdict}: {len(made) - len(wrong)} of {text.plural(len(made), 'check')} passed, {store.info.id}")
    if wrong:
        raise typer.Exit(EXIT_FAILED_SAMPLES)


def _measured(table: AcceptanceTable, results: Path, without: str | None, *, stage: bool) -> RunStore:
    """A run of the study. What failed in it is judged, as everything else is."""
    fabric = None if table.fabric == "emulated" else table.fabric
    ((store, _),) = measure(
        [table.study], results=results, fabric=fabric, hosts=table.hosts, without=without, stage=stage
    )
    return store


def _write(path: Path, content: str) -> None:
    """At once, for a collector may read it at any moment."""
    temporary = path.with_name(path.name + ".new")
    temporary.write_text(content, encoding="utf-8")
    temporary.replace(path)
    say(f"Written: {path}")
