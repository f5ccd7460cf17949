"""``rocelab studies``: which studies there are, what one would do, and whether a file is in order."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from rocelab.claims import ClaimError, all_claims
from rocelab.cli.problems import fail
from rocelab.stats import text
from rocelab.study import catalogue
from rocelab.study.loading import parse, read
from rocelab.study.plan import measurement_count, plan
from rocelab.study.problems import StudyError
from rocelab.study.schema import Study
from rocelab.study.steps import JobStep, Step
from rocelab.study.together_steps import MeshStep
from rocelab.virtual.flow_steps import FlowsStep
from rocelab.virtual.loading import is_virtual
from rocelab.virtual.loading import parse as parse_virtual
from rocelab.virtual.schema import MANY_NODES, VirtualStudy
from rocelab.virtual.steps import VirtualStep
from rocelab.virtual.steps import plan as plan_virtual

app = typer.Typer(help="Which studies there are, what one would do, and whether a file of yours is in order.")


def complete(incomplete: str) -> list[str]:
    """Names of studies for the shell."""
    return [name for name in catalogue.files() if name.startswith(incomplete)]


def load_study(name: str) -> tuple[Study | VirtualStudy, str]:
    """The study that a person named, and its text. Raises StudyError."""
    return load_file(catalogue.resolve(name), known_claims())


def load_file(path: Path, claims: Collection[str] = ()) -> tuple[Study | VirtualStudy, str]:
    """The study in a file, of either kind of fabric, and the file's text. Raises StudyError."""
    text = read(path)
    study = parse_any(text, str(path), claims)
    if isinstance(study, Study):
        study = study.model_copy(update={"folder": str((path.parent / study.folder).resolve())})
    return study, text


def parse_any(text: str, source: str, claims: Collection[str] = (), folder: str | None = None) -> Study | VirtualStudy:
    """The study in a text, of either kind of fabric. Raises StudyError.

    Paths to what a simulation reads begin at ``folder``, or else where ``source`` is.
    """
    return parse_virtual(text, source, claims, folder) if is_virtual(text) else parse(text, source, claims)


def steps_of(study: Study | VirtualStudy) -> list[Step]:
    """What a study does, in the order of its plan."""
    return [*plan_virtual(study)] if isinstance(study, VirtualStudy) else plan(study)


def known_claims() -> frozenset[str]:
    """Ids of the claims that a study may name."""
    try:
        return frozenset(claim.id for claim in all_claims())
    except ClaimError as error:
        fail("studies", error)


@app.callback(invoke_without_command=True)
def list_(context: typer.Context) -> None:
    """List the studies: those that come with rocelab and those in ./studies."""
    if context.invoked_subcommand is not None:
        return
    table = Table("NAME", "MEASUREMENTS", "ABOUT", "TITLE", box=None, pad_edge=False)
    console = Console()
    for name, path in catalogue.files().items():
        try:
            study, _ = load_file(path)
        except StudyError as error:
            table.add_row(name, "", "", f"[red]not in order:[/] rocelab studies check {path} ({len(error.problems)})")
            continue
        steps = steps_of(study)
        table.add_row(name, str(measurement_count(steps)), duration(seconds(steps)), study.title)
    if table.row_count == 0:
        console.print("There is no study here. `rocelab run FILE.toml` runs one of your own.")
        return
    console.print(table)
    console.print("Run one with: rocelab run NAME", highlight=False)


@app.command()
def show(name: Annotated[str, typer.Argument(help="A study or its file.", autocompletion=complete)]) -> None:
    """Show what a study measures: every series with its tool, sizes, repetitions and duration."""
    try:
        study, _ = load_study(name)
    except StudyError as error:
        fail("studies", error)
    console = Console()
    steps = steps_of(study)
    console.print(f"[bold]{study.id}[/]: {study.title}", highlight=False)
    if study.description:
        console.print(study.description, highlight=False)
    if study.claims:
        console.print(f"Claims: {', '.join(study.claims)}", highlight=False)
    table = Table("LINK", "TEST", "SERIES", "TOOL", "SIZES", "TIMES", "ABOUT", box=None, pad_edge=False)
    for _, members in groupby(sorted(steps, key=lambda step: step.series), key=lambda step: step.series):
        table.add_row(*_row(list(members)))
    console.print(table)
    console.print(f"{measurement_count(steps)} measurements, about {duration(seconds(steps))}", highlight=False)


def _row(steps: list[Step]) -> tuple[str, ...]:
    first = steps[0]
    sizes = sorted({size_bytes for step in steps for size_bytes in step.sizes_bytes})
    span = f"{text.size(sizes[0])} .. {text.size(sizes[-1])} ({len(sizes)})" if sizes else "none"
    repetitions = max(step.repetition for step in steps) + 1
    test = first.test_name
    if isinstance(first, JobStep):
        test = f"{first.level.upper()} {test}, {first.nodes} x {first.ranks_per_node}"
    if isinstance(first, MeshStep | FlowsStep) or (isinstance(first, VirtualStep) and first.test.test in MANY_NODES):
        test = f"{test}, {first.nodes} nodes"
    series = f"{first.interconnect} {first.variant}"
    return (first.link.id, test, series, first.tool, span, str(repetitions), duration(seconds(steps)))


@app.command()
def check(files: Annotated[list[Path], typer.Argument(help="Study files.")]) -> None:
    """Check study files without running them. The exit status is 1 if one is not in order."""
    wrong = False
    for path in files:
        try:
            study, _ = load_file(path, known_claims())
        except StudyError as error:
            Console(stderr=True).print(str(error), soft_wrap=True, markup=False, highlight=False)
            wrong = True
            continue
        steps = steps_of(study)
        Console().print(
            f"{path}: in order, {measurement_count(steps)} measurements, about {duration(seconds(steps))}",
            soft_wrap=True, markup=False, highlight=False,
        )  # fmt: skip
    raise typer.Exit(1 if wrong else 0)


def seconds(steps: Sequence[Step]) -> float:
    """About how long the steps take together."""
    return sum(step.expected_s for step in steps)


def duration(time_s: float) -> str:
    """``40 s``, ``5 min``, ``2 h 10 min``."""
    if time_s < 90:
        return f"{max(1, round(time_s))} s"
    minutes = round(time_s / 60)
    if minutes < 90:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"
