"""``rocelab draws``: simulates what claims are about again, with other values of what the profiles assume."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from rocelab.claims import ClaimError, claims_by_id, simulated_tests
from rocelab.cli.grounds import VirtualGround
from rocelab.cli.problems import fail, say
from rocelab.cli.run import EXIT_FAILED_SAMPLES, EXIT_INTERRUPTED, show_report
from rocelab.cli.studies import known_claims, parse_any
from rocelab.cli.under_way import interruptible, sole_writer
from rocelab.drawn import DrawStore
from rocelab.profiles.drawing import Draw
from rocelab.profiles.drawing import draws as drawn_values
from rocelab.results import ResultsError, RunStore, find_run
from rocelab.stats import text
from rocelab.study.problems import StudyError
from rocelab.virtual.draws import Chosen, DrawRunner, used
from rocelab.virtual.schema import VirtualStudy
from rocelab.virtual.steps import plan

_COUNT = 20
_COUNT_MAX = 1000


@dataclass(frozen=True, slots=True)
class _Job:
    """What is to be simulated."""

    study: VirtualStudy
    chosen: Chosen
    values: list[Draw]
    steps: int
    """In each draw."""


def draws(
    run: Annotated[str, typer.Argument(help="A simulated run: its folder, id or a unique part of it.")] = "latest",
    *,
    count: Annotated[
        int | None,
        typer.Option("--draws", min=1, max=_COUNT_MAX, help=f"How many draws; default {_COUNT}, or those begun."),
    ] = None,
    claims: Annotated[
        str | None, typer.Option(help="Only what these claims are about, such as V1,V4. Default: those of the study.")
    ] = None,
    mpi: Annotated[
        bool, typer.Option("--mpi", help="MPI programs under SimGrid, too. They take minutes in each draw.")
    ] = False,
    anew: Annotated[bool, typer.Option("--anew", help="Delete the draws that the run has, and begin again.")] = False,
    results: Annotated[Path, typer.Option(help="Where runs are kept.")] = Path("results"),
    report: Annotated[bool, typer.Option("--report/--no-report", help="Write the report again at the end.")] = True,
) -> None:
    """Simulate what a run's claims are about with values drawn from what its profiles assume.

    Draws are kept in the folder of the run. A claim is then reproduced only if it holds in 9 of 10 of them. What was
    interrupted goes on.
    """
    try:
        store = find_run(results, run)
        draw_store = DrawStore(store.path)
        with sole_writer(store):
            job = _job(store, draw_store, count, claims.split(",") if claims else None, with_mpi=mpi, anew=anew)
            failed = _simulate(store, draw_store, job)
    except (ResultsError, ClaimError, StudyError, OSError) as error:
        fail("draws", error)
    except KeyboardInterrupt:
        say(f"Interrupted. Go on with:  rocelab draws {store.path}")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    if report:
        show_report(store)
    if failed:
        say(f"{text.plural(failed, 'simulation')} failed; 'rocelab draws' tries them again.")
        raise typer.Exit(EXIT_FAILED_SAMPLES)


def _job(
    store: RunStore,
    draw_store: DrawStore,
    count: int | None,
    claims: Sequence[str] | None,
    *,
    with_mpi: bool,
    anew: bool,
) -> _Job:
    study = parse_any(store.study_text(), str(store.path / "study.toml"), known_claims(), store.info.folder)
    if not isinstance(study, VirtualStudy):
        fail("draws", f"run {store.info.id} was not simulated from profiles: nothing is assumed in it")
    named = claims_by_id(store.info.claims if claims is None else claims)
    if not named:
        fail("draws", f"study {study.id} has no claims, and draws say how certain claims are")
    chosen = Chosen(frozenset(each for claim in named for each in simulated_tests(claim)), with_mpi)
    steps = plan(study)
    wanted, left_out = chosen.of(steps)
    if left_out:
        tests = text.listing(sorted({f"{step.keys[0].level} {step.test_name}" for step in left_out}))
        say(f"Left out: {text.plural(len(left_out), 'MPI job')} in each draw ({tests}); --mpi takes them in.")
    if not wanted:
        fail("draws", f"nothing that {text.listing([claim.id for claim in named])} is about is left in {study.id}")
    VirtualGround().check(wanted, skip_missing=False)
    before = [] if anew else draw_store.values()
    # Of the whole study, so that a draw has the same values whatever of it is simulated.
    values = drawn_values(used(steps), count or len(before) or _COUNT, study.seed)
    spelled = [{str(name): value for name, value in draw.items()} for draw in values]
    if not any(spelled):
        fail("draws", f"the profiles of {study.id} assume nothing that could be drawn")
    if before and before != spelled:
        fail("draws", f"the run has {text.plural(len(before), 'draw')} with other values: --anew deletes them")
    if not before:
        draw_store.begin(spelled)
    return _Job(study, chosen, values, len(wanted))


def _simulate(store: RunStore, draw_store: DrawStore, job: _Job) -> int:
    """Gives how many steps failed."""
    count = len(job.values)
    say(f"{text.plural(count, 'draw')} of {text.plural(len(job.values[0]), 'assumed value')}, {job.steps} steps each")
    with interruptible(), Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("simulating", total=count * job.steps)

        def ended(error: str | None) -> None:
            progress.advance(bar)
            if error is not None:
                say(f"A simulation failed: {error}")

        runner = DrawRunner(store, draw_store, store.info.provenance.tools)
        return runner.run(job.study, job.chosen, job.values, ended)
