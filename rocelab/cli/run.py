"""``rocelab run``: carries out studies, and goes on with one that was interrupted."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import secrets
import shlex
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Annotated

import psutil
import typer
from rich.console import Console

from rocelab import peers
from rocelab.cli.budget import fitting, warn_unreachable, with_repetitions
from rocelab.cli.problems import fail, say
from rocelab.cli.progress import watch
from rocelab.cli.studies import complete, duration, known_claims, load_study, parse_any, seconds, steps_of
from rocelab.fabric import emulated
from rocelab.fabric.base import FabricError, LinkProfile
from rocelab.launch import congestion
from rocelab.launch.namespace import NamespaceLauncher
from rocelab.results import LinkInfo, ResultsError, RunInfo, RunStore, find_run
from rocelab.stats import text
from rocelab.study import catalogue
from rocelab.study.adaptive import Course
from rocelab.study.availability import measurable
from rocelab.study.budget import Budget, Pace, span
from rocelab.study.execution import now
from rocelab.study.load_meter import LoadMeter
from rocelab.study.node_facts import NodeFacts, ask
from rocelab.study.plan import measurement_count
from rocelab.study.problems import StudyError
from rocelab.study.provenance import provenance, tool_versions
from rocelab.study.runner import Outcome, Runner, remaining
from rocelab.study.schema import BUDGET_MAX_MINUTES, REPETITIONS_MAX, Study
from rocelab.study.steps import Step
from rocelab.tools.base import Executable
from rocelab.virtual.runner import VirtualRunner
from rocelab.virtual.schema import VirtualStudy
from rocelab.virtual.smpi.steps import SmpiStep
from rocelab.virtual.steps import VirtualStep, link_info

EXIT_WRONG = 1
EXIT_FAILED_SAMPLES = 3
EXIT_INTERRUPTED = 130

#: What the file of a study for a fabric ends on, where a study has one for each.
FABRICS = {"emulated": "", "virtual": "-virtual"}


@dataclass(frozen=True)
class _Job:
    """A study that is ready to be run: read, planned, and nothing it needs is missing."""

    study: Study | VirtualStudy
    text: str
    steps: Sequence[Step]
    store: RunStore | None
    """The run to go on with; None for a new one."""
    budget_s: float | None = None
    """Wall time for it; None: as long as its steps take."""
    chosen_repetitions: int | None = None
    """Repetitions that are not the study's own."""
    left_out: tuple[str, ...] = ()
    """What of the study this machine cannot measure, and why."""


def run(  # noqa: PLR0917, typer makes an option of each
    studies: Annotated[
        list[str] | None, typer.Argument(help="Studies: names or .toml files.", autocompletion=complete)
    ] = None,
    resume: Annotated[
        str | None, typer.Option(help="Go on with this run: its id, a unique part of it, its folder, or 'latest'.")
    ] = None,
    results: Annotated[Path, typer.Option(help="Where runs are kept.")] = Path("results"),
    skip_missing: Annotated[
        bool, typer.Option("--skip-missing", help="Run also if programs are missing; what needs them fails.")
    ] = False,
    no_report: Annotated[
        bool, typer.Option("--no-report", help="Only measure; `rocelab report` makes it later.")
    ] = False,
    fabric: Annotated[
        str | None,
        typer.Option(help="Take the half of each study that is for this fabric: 'virtual', simulated hardware."),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            max=BUDGET_MAX_MINUTES,
            help="Wall time for each study. What is not clear after its plan is measured again until then.",
        ),
    ] = None,
    repetitions: Annotated[
        int | None, typer.Option(min=1, max=REPETITIONS_MAX, help="How often everything is measured in the plan.")
    ] = None,
) -> None:
    """Run studies one after the other, and write a report of each.

    Exit status: 0 all was measured; 1 wrong use; 3 some measurements failed; 130 interrupted.
    """
    try:
        names = [half_for(fabric, name) for name in studies or []]
        if bool(names) == (resume is not None):
            fail("run", "name the studies to run, or the run to --resume; `rocelab studies` lists the studies")
        if resume is None:
            jobs = [_new_job(name, minutes, repetitions) for name in names]
        elif repetitions is not None:
            fail("run", "a run that goes on keeps its repetitions; --minutes gives it time for more")
        else:
            jobs = [_resumed_job(resume, results, minutes)]
        every_step = [step for job in jobs for step in job.steps]
        _check_programs(every_step, skip_missing=skip_missing)
        check_memory(every_step)
        status = max(_run_job(job, results, report=not no_report) for job in jobs)
    except StudyError as error:
        fail("run", f"the study cannot be used:\n{error}")
    except (FabricError, ResultsError, OSError) as error:
        fail("run", error)
    raise typer.Exit(status)


def half_for(fabric: str | None, name: str) -> str:
    """The study that a person means by a name and a fabric: the file beside it whose name ends on the fabric's."""
    if fabric is None:
        return name
    if fabric not in FABRICS:
        fail("run", f"there is no fabric {fabric!r}; there are: {', '.join(FABRICS)}")
    study, _ = load_study(name)
    if study.fabric.kind == fabric:
        return name
    path = catalogue.resolve(name)
    half = path.with_name(f"{path.stem.removesuffix('-virtual')}{FABRICS[fabric]}.toml")
    if not half.exists():
        fail("run", f"{name} is about the fabric {study.fabric.kind!r}, and there is no {half} for {fabric!r}")
    return str(half)


def _new_job(name: str, minutes: float | None, repetitions: int | None) -> _Job:
    study, source = load_study(name)
    if isinstance(study, VirtualStudy):
        if (minutes, repetitions) != (None, None):
            fail("run", f"{study.id} is simulated, which comes out the same each time: no --minutes, no --repetitions")
        return _Job(study, source, steps_of(study), None)
    study, left_out = _measurable(study)
    own_repetitions = study.repetitions
    if repetitions is not None:
        study = with_repetitions(study, repetitions)
    budget_s = _budget_s(study, minutes)
    if budget_s is not None:
        study = fitting(study, budget_s)
    warn_unreachable(study)
    chosen = None if study.repetitions == own_repetitions else study.repetitions
    return _Job(study, source, steps_of(study), None, budget_s, chosen, left_out)


def _resumed_job(resume: str, results: Path, minutes: float | None) -> _Job:
    store = find_run(results, resume)
    source = store.study_text()
    study = parse_any(source, str(store.path / "study.toml"), known_claims())
    if isinstance(study, VirtualStudy):
        if minutes is not None:
            fail("run", f"{study.id} is simulated, which comes out the same each time: no --minutes")
        return _Job(study, source, remaining(steps_of(study), store), store)
    study, left_out = _measurable(study)
    chosen = store.info.chosen_repetitions
    if chosen is not None:
        study = with_repetitions(study, chosen)
    steps = remaining(steps_of(study), store)
    # A run that is complete has had its time: more must be asked for.
    budget_s = _budget_s(study, minutes) if steps or minutes is not None else None
    return _Job(study, source, steps, store, budget_s, chosen, left_out)


def _measurable(study: Study) -> tuple[Study, tuple[str, ...]]:
    """What of the study this machine can measure; says what it cannot."""
    reduced, left_out = measurable(study)
    for words in left_out:
        say(words)
    if not reduced.test:
        fail("run", f"nothing of {study.id} can be measured here")
    return reduced, left_out


def _budget_s(study: Study, minutes: float | None) -> float | None:
    """The time that was asked for, else the study's own."""
    chosen = study.budget_minutes if minutes is None else minutes
    return None if chosen is None else 60 * chosen


def _check_programs(steps: Sequence[Step], *, skip_missing: bool) -> None:
    """Say everything that is wrong or missing at once, before anything is measured."""
    implementations = {each for step in steps for each in step.mpi_used}
    wrong = sorted(problem for each in implementations if (problem := each.problem) is not None)
    if wrong:
        fail("run", "the study names an MPI that cannot be used:\n" + "\n".join(f"  {problem}" for problem in wrong))
    wanted = {executable.name: executable for step in steps for executable in step.executables}
    controls = [control for step in steps if (control := peers.control_of(step.variant)) is not None]
    if controls:
        wanted["ip"] = Executable("ip", package="iproute2")
    if (unlisted := congestion.unlisted(controls)) and not skip_missing:
        say(
            f"This kernel does not list the congestion control {text.listing(unlisted)}: unless it loads it, these "
            "measurements fail and no others."
        )
    missing: list[Executable] = [executable for executable in wanted.values() if executable.path is None]
    if not missing:
        return
    lines = [f"  {Path(executable.name).name}: {executable.advice}" for executable in missing]
    if skip_missing:
        say("Programs are missing; what needs them will fail:\n" + "\n".join(lines))
        return
    fail("run", "programs are missing:\n" + "\n".join(lines) + "\nOr run what is possible with --skip-missing.")


def check_memory(steps: Sequence[Step]) -> None:
    """Say which simulated program does not fit, before anything is simulated."""
    available_bytes = psutil.virtual_memory().available
    needed = {step.test_name: step.memory_bytes for step in steps if isinstance(step, SmpiStep)}
    lines = [
        f"  {test}: {_gibibytes(size_bytes)}" for test, size_bytes in needed.items() if size_bytes > available_bytes
    ]
    if lines:
        fail(
            "run",
            f"these programs need more memory than the {_gibibytes(available_bytes)} that are available:\n"
            + "\n".join(lines) + "\nTake a smaller class, or `model = true`, which simulates their work without data.",
        )  # fmt: skip


def _gibibytes(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 30):.1f} GiB"


def _run_job(job: _Job, results: Path, *, report: bool) -> int:
    console = Console(stderr=True)
    if job.store is not None and not job.steps and job.budget_s is None:
        say(f"Run {job.store.info.id} is complete; nothing is left to do.")
        return _finish(job.store, results, Outcome(0, 0), report=report)
    store: RunStore | None = None
    budget = None if job.budget_s is None else Budget(job.budget_s)
    with _interruptible():
        try:
            with contextlib.ExitStack() as stack:
                fabric, launcher, facts = None, None, NodeFacts()
                if isinstance(job.study, Study):
                    fabric = stack.enter_context(emulated.up(*_shape_of(job.study)))
                    launcher = NamespaceLauncher(fabric)
                    facts = ask(fabric, launcher)
                store = job.store or _new_run(job, results, facts)
                stack.enter_context(_sole_writer(store))
                store.set_status("running")
                _announce(job, store)
                watcher = stack.enter_context(watch(job.study.id, job.steps, console))
                versions = tool_versions(job.steps)
                if fabric is not None and launcher is not None:
                    course = None if budget is None else Course(steps_of(job.study), budget, Pace())
                    runner = Runner(store, fabric, launcher, watcher, versions, course=course, meter=LoadMeter())
                    outcome = runner.run(job.steps)
                else:
                    simulations = [step for step in job.steps if isinstance(step, VirtualStep | SmpiStep)]
                    outcome = VirtualRunner(store, watcher, versions).run(simulations)
        except KeyboardInterrupt:
            _say_interrupted(store, results)
            raise typer.Exit(EXIT_INTERRUPTED) from None
        return _finish(store, results, outcome, report=report)


def _shape_of(study: Study) -> tuple[list[LinkProfile], tuple[str, ...]]:
    """Links and node names of the fabric that a study wants."""
    return [link.profile() for link in study.link], emulated.default_names(study.fabric.nodes)


def _announce(job: _Job, store: RunStore) -> None:
    left = "" if job.store is None else "still "
    about = duration(seconds(list(job.steps)))
    budget = "" if job.budget_s is None else f", and up to {span(job.budget_s)} in all for what is not clear then"
    say(f"{job.study.title}: {left}{measurement_count(job.steps)} measurements, about {about}{budget}")
    say(f"Run: {store.path}")


def _say_interrupted(store: RunStore | None, results: Path) -> None:
    if store is None:
        say("Interrupted before anything was measured.")
        return
    this = _name_of(store, results)
    say(
        f"Interrupted. {len(store.done_keys())} of {store.info.planned_steps} measurements are kept.\n"
        f"Go on with:  rocelab run --resume {this}\n"
        f"See so far:  rocelab report {this}"
    )


def _name_of(store: RunStore, results: Path) -> str:
    """What a person has to type to mean this run."""
    return store.info.id if results == Path("results") else f"{store.info.id} --results {shlex.quote(str(results))}"


def _finish(store: RunStore, results: Path, outcome: Outcome, *, report: bool) -> int:
    if report:
        # The drawing libraries take a while to load, and nothing is to wait for them before.
        from rocelab.report.model import RunModel  # noqa: PLC0415
        from rocelab.report.terminal import print_summary  # noqa: PLC0415
        from rocelab.report.write import write_report  # noqa: PLC0415

        with Console(stderr=True).status("writing the report") as status:
            files = write_report(store, progress=status.update)
        print_summary(Console(), RunModel.of(store), files.page)
    if outcome.failed:
        again = f"rocelab run --resume {_name_of(store, results)}"
        say(f"{outcome.failed} measurements failed. Try them again with:  {again}")
        return EXIT_FAILED_SAMPLES
    if outcome.cut:
        say(
            f"The time was over before {outcome.cut} of the measurements. "
            f"Make them with:  rocelab run --resume {_name_of(store, results)}"
        )
    return 0


def _new_run(job: _Job, results: Path, facts: NodeFacts) -> RunStore:
    study = job.study
    started = datetime.now(UTC)
    found = provenance(shlex.join(["rocelab", *sys.argv[1:]]), job.steps, study.fabric.kind)
    info = RunInfo(
        id=f"{started:%Y%m%d-%H%M%S}-{study.id}-{secrets.token_hex(2)}",
        study=study.id,
        title=study.title,
        fabric=study.fabric.kind,
        status="running",
        started_at=now(),
        seed=study.seed,
        repetitions=study.repetitions,
        links=tuple(dataclasses.replace(link, facts=facts.links.get(link.id, {})) for link in _links_of(study)),
        provenance=dataclasses.replace(
            found, network={**found.network, **facts.network}, notes=(*found.notes, *job.left_out)
        ),
        planned_steps=measurement_count(job.steps),
        claims=tuple(study.claims),
        budget_minutes=None if job.budget_s is None else job.budget_s / 60,
        chosen_repetitions=job.chosen_repetitions,
    )
    return RunStore.create(results, info, job.text)


def _links_of(study: Study | VirtualStudy) -> tuple[LinkInfo, ...]:
    if isinstance(study, VirtualStudy):
        return tuple(link_info(study, link) for link in study.link)
    return tuple(LinkInfo(**link.model_dump()) for link in study.link)


@contextlib.contextmanager
def _sole_writer(store: RunStore) -> Iterator[None]:
    """Keep a second rocelab from going on with the same run at the same time."""
    folder = os.open(store.logs, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ResultsError(f"run {store.info.id} is under way in another process") from None
        yield
    finally:
        os.close(folder)


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end a run as Ctrl-C does: tidily."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        # Once is enough: the second must not disturb the tidying up.
        for number in before:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    for number in before:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
