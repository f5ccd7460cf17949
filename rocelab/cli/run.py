"""``rocelab run``: carries out studies, and goes on with one that was interrupted."""

from __future__ import annotations

import contextlib
import dataclasses
import secrets
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console

from rocelab.cli.budget import fitting, warn_unreachable, with_repetitions
from rocelab.cli.full_size import check_needs, larger
from rocelab.cli.grounds import EmulatedGround, Ground, Opened, VirtualGround
from rocelab.cli.hosts import opened
from rocelab.cli.problems import fail, say
from rocelab.cli.progress import watch
from rocelab.cli.studies import complete, duration, known_claims, load_study, parse_any, seconds
from rocelab.cli.under_way import interruptible, sole_writer
from rocelab.fabric.base import FabricError, LaunchError
from rocelab.results import ResultsError, RunInfo, RunStore, find_run
from rocelab.study import catalogue
from rocelab.study.adaptive import Course
from rocelab.study.budget import Budget, Pace, span
from rocelab.study.execution import now
from rocelab.study.levels.programs import is_own
from rocelab.study.plan import measurement_count
from rocelab.study.problems import StudyError
from rocelab.study.runner import Outcome, remaining
from rocelab.study.schema import Study
from rocelab.study.steps import Step
from rocelab.study.tables import BUDGET_MAX_MINUTES, REPETITIONS_MAX
from rocelab.tools.base import ToolError
from rocelab.tools.own import build
from rocelab.virtual.own import can_be_simulated, virtual_half
from rocelab.virtual.schema import TestTable, VirtualStudy

EXIT_WRONG = 1
EXIT_FAILED_SAMPLES = 3
EXIT_INTERRUPTED = 130

HOSTS = "hosts"
#: What the file of a study for a fabric ends on, where a study has one for each.
FABRICS = {"emulated": "", "virtual": "-virtual", HOSTS: ""}


_FullSize = Annotated[
    bool,
    typer.Option(
        "--full-size", help="At the sizes of the study's source; says first what time, memory and disk that takes."
    ),
]


_OnCluster = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS|slurm[:JOBS]",
        help="Simulate on a Dask cluster: the address of its scheduler, or 'slurm' for jobs (docs/simulator-speed.md).",
    ),
]


@dataclass(frozen=True)
class _Job:
    """A study that is ready to be run: read, planned, and nothing it needs is missing."""

    ground: Ground[Any]
    """Where it runs."""
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
        typer.Option(
            help="Where to run: 'virtual', simulated hardware, for which a study has a file of its own; or 'hosts', "
            "machines of yours."
        ),
    ] = None,
    hosts: Annotated[
        str | None,
        typer.Option(
            help="With --fabric hosts: a list such as node[01-16], or a file. Else ./hosts.toml, or the allocation."
        ),
    ] = None,
    without: Annotated[str | None, typer.Option(help="Hosts to leave out, as a list.", metavar="HOSTS")] = None,
    stage: Annotated[
        bool, typer.Option("--stage", help="Copy rocelab's own programs to hosts without them, for the run.")
    ] = False,
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
    full_size: _FullSize = False,
    cluster: _OnCluster = None,
) -> None:
    """Run studies one after the other, and write a report of each.

    Exit status: 0 all was measured; 1 wrong use; 3 some measurements failed; 130 interrupted.
    """
    try:
        made = measure(
            studies or [],
            resume=resume,
            results=results,
            skip_missing=skip_missing,
            report=not no_report,
            fabric=fabric,
            hosts=hosts,
            without=without,
            stage=stage,
            minutes=minutes,
            repetitions=repetitions,
            full_size=full_size,
            cluster=cluster,
        )
    except StudyError as error:
        fail("run", f"the study cannot be used:\n{error}")
    except (FabricError, LaunchError, ResultsError, OSError) as error:
        fail("run", error)
    raise typer.Exit(max(status for _, status in made))


def measure(
    studies: Sequence[str],
    *,
    results: Path,
    resume: str | None = None,
    skip_missing: bool = False,
    report: bool = True,
    fabric: str | None = None,
    hosts: str | None = None,
    without: str | None = None,
    stage: bool = False,
    minutes: float | None = None,
    repetitions: int | None = None,
    full_size: bool = False,
    cluster: str | None = None,
) -> list[tuple[RunStore, int]]:
    """Carry out studies, or go on with a run: each run with its exit status. The arguments are the command's options.

    Raises StudyError, FabricError, LaunchError, ResultsError and OSError; ends the command for wrong use.
    """
    names = [half_for(fabric, name) for name in studies]
    if bool(names) == (resume is not None):
        fail("run", "name the studies to run, or the run to --resume; `rocelab studies` lists the studies")
    if resume is not None:
        _check_resumed(repetitions, full_size=full_size)
    store = None if resume is None else find_run(results, resume)
    on_hosts = fabric == HOSTS if store is None else store.info.fabric == HOSTS
    _check_place(on_hosts=on_hosts, of_hosts=hosts is not None or without is not None or stage, cluster=cluster)
    with contextlib.ExitStack() as stack:
        if store is not None and hosts is None:
            hosts = store.info.hosts
        ground = stack.enter_context(_hosts(hosts, without, stage=stage)) if on_hosts else None
        here = _HERE if cluster is None else {VirtualGround.kind: stack.enter_context(_cluster(cluster))}
        if store is not None:
            jobs = [_resumed_job(store, minutes, ground, here)]
        else:
            jobs = [
                _new_job(_as_asked(name, fabric, full_size=full_size), minutes, repetitions, ground, here)
                for name in names
            ]
        at_full_size = [job.steps for job in jobs if isinstance(job.study, Study) and job.study.at_full_size]
        if at_full_size:
            check_needs(at_full_size, results, is_here=ground is None)
        try:
            build(built_by for job in jobs for step in job.steps if (built_by := step.built_by) is not None)
        except ToolError as error:
            fail("run", f"a program of the study cannot be built:\n{error}")
        for each in {job.ground.kind: job.ground for job in jobs}.values():
            every_step = [step for job in jobs if job.ground.kind == each.kind for step in job.steps]
            each.check(every_step, skip_missing=skip_missing)
        return [_run_job(job, results, report=report) for job in jobs]


def half_for(fabric: str | None, name: str) -> str:
    """The study that a person means by a name and a fabric: the file beside it whose name ends on the fabric's."""
    if fabric is None:
        return name
    if fabric not in FABRICS:
        fail("run", f"there is no fabric {fabric!r}; there are: {', '.join(FABRICS)}")
    study, _ = load_study(name)
    if study.fabric.kind == fabric or (fabric == HOSTS and study.fabric.kind == EmulatedGround.kind):
        return name
    if fabric == VirtualGround.kind and isinstance(study, Study) and can_be_simulated(study):
        return name
    path = catalogue.resolve(name)
    half = path.with_name(f"{path.stem.removesuffix('-virtual')}{FABRICS[fabric]}.toml")
    if not half.exists():
        fail("run", f"{name} is about the fabric {study.fabric.kind!r}, and there is no {half} for {fabric!r}")
    return str(half)


#: The fabrics that need nothing but this machine, by the kind that a study file names.
_HERE: Mapping[str, Ground[Any]] = {EmulatedGround.kind: EmulatedGround(), VirtualGround.kind: VirtualGround()}


def _check_resumed(repetitions: int | None, *, full_size: bool) -> None:
    """End the command where its options would change a run that goes on."""
    if repetitions is not None:
        fail("run", "a run that goes on keeps its repetitions; --minutes gives it time for more")
    if full_size:
        fail("run", "a run that goes on keeps its sizes; leave out --full-size")


def _check_place(*, on_hosts: bool, of_hosts: bool, cluster: str | None) -> None:
    """End the command where its options are about two places, or about another than the fabric's."""
    if of_hosts and not on_hosts:
        fail("run", "--hosts, --without and --stage are for --fabric hosts")
    if on_hosts and cluster is not None:
        fail("run", _ONLY_SIMULATED)


_ONLY_SIMULATED: Final = "--cluster is for studies that are simulated: --fabric virtual, or one that says so itself"


def _ground_of(study: Study | VirtualStudy, here: Mapping[str, Ground[Any]]) -> Ground[Any]:
    kind = study.fabric.kind
    if kind not in here:
        fail("run", f"{study.id} is measured on the fabric {kind!r}. {_ONLY_SIMULATED}")
    return here[kind]


@contextlib.contextmanager
def _cluster(named: str) -> Iterator[Ground[Any]]:
    """The Dask cluster that a person means, for all studies of the command."""
    try:
        from rocelab.cli.cluster_ground import on_cluster  # noqa: PLC0415, Dask is an extra
    except ModuleNotFoundError as error:
        fail("run", f"--cluster needs Dask, which is not installed ({error}): pip install 'rocelab[cluster]'")
    with interruptible(), on_cluster(named) as ground:
        yield ground


@contextlib.contextmanager
def _hosts(hosts: str | None, without: str | None, *, stage: bool) -> Iterator[Ground[Any]]:
    """The machines that a person means, for all studies of the command."""
    from rocelab.cli.hosts_ground import HostsGround  # noqa: PLC0415, ClusterShell need not load for other fabrics

    with interruptible(), opened(hosts, without, "reaching the hosts") as fabric:
        yield HostsGround(fabric, stage=stage, named=hosts)


def _as_asked(name: str, fabric: str | None, *, full_size: bool) -> tuple[Study | VirtualStudy, str]:
    """A study and its text, for a fabric, and at the sizes of its source."""
    study, source = load_study(name)
    if full_size:
        study, source = larger(study, source, name)
    if fabric == VirtualGround.kind and isinstance(study, Study):
        study = virtual_half(study)
    return study, source


def _new_job(
    asked: tuple[Study | VirtualStudy, str],
    minutes: float | None,
    repetitions: int | None,
    ground: Ground[Any] | None,
    here: Mapping[str, Ground[Any]],
) -> _Job:
    """A study on this machine, whose grounds are ``here``, or on another `ground`."""
    study, source = asked
    if ground is not None and isinstance(study, VirtualStudy):
        fail(
            "run",
            f"{study.id} is about simulation: on hosts its other half runs, {study.id.removesuffix('-virtual')}",
        )
    ground = ground or _ground_of(study, here)
    if isinstance(study, VirtualStudy):
        if (minutes, repetitions) != (None, None):
            fail("run", f"{study.id} is simulated, which comes out the same each time: no --minutes, no --repetitions")
        return _Job(ground, study, source, ground.steps(study), None)
    study, left_out = _fitting(ground, study)
    own_repetitions = study.repetitions
    if repetitions is not None:
        study = with_repetitions(study, repetitions)
    budget_s = _budget_s(study, minutes)
    if budget_s is not None:
        study = fitting(study, budget_s)
    warn_unreachable(study)
    chosen = None if study.repetitions == own_repetitions else study.repetitions
    return _Job(ground, study, source, ground.steps(study), None, budget_s, chosen, left_out)


def _resumed_job(
    store: RunStore, minutes: float | None, ground: Ground[Any] | None, here: Mapping[str, Ground[Any]]
) -> _Job:
    source = store.study_text()
    study = parse_any(source, str(store.path / "study.toml"), known_claims(), store.info.folder)
    if isinstance(study, Study) and store.info.folder is not None:
        study = study.model_copy(update={"folder": store.info.folder})
    if isinstance(study, Study) and store.info.fabric == VirtualGround.kind:
        study = virtual_half(study)
    ground = ground or _ground_of(study, here)
    if isinstance(study, VirtualStudy):
        if minutes is not None:
            fail("run", f"{study.id} is simulated, which comes out the same each time: no --minutes")
        return _Job(ground, study, source, remaining(ground.steps(study), store), store)
    study, left_out = _fitting(ground, study)
    chosen = store.info.chosen_repetitions
    if chosen is not None:
        study = with_repetitions(study, chosen)
    steps = remaining(ground.steps(study), store)
    # A run that is complete has had its time: more must be asked for.
    budget_s = _budget_s(study, minutes) if steps or minutes is not None else None
    return _Job(ground, study, source, steps, store, budget_s, chosen, left_out)


def _fitting(ground: Ground[Study], study: Study) -> tuple[Study, tuple[str, ...]]:
    """What of the study can be measured there; says what cannot."""
    reduced, left_out = ground.fitting(study)
    for words in left_out:
        say(words)
    if not reduced.test:
        fail("run", f"nothing of {study.id} can be measured here")
    return reduced, left_out


def _budget_s(study: Study, minutes: float | None) -> float | None:
    """The time that was asked for, else the study's own."""
    chosen = study.budget_minutes if minutes is None else minutes
    return None if chosen is None else 60 * chosen


def _run_job(job: _Job, results: Path, *, report: bool) -> tuple[RunStore, int]:
    console = Console(stderr=True)
    if job.store is not None and not job.steps and job.budget_s is None:
        say(f"Run {job.store.info.id} is complete; nothing is left to do.")
        return job.store, _finish(job.store, results, Outcome(0, 0), report=report)
    store: RunStore | None = None
    budget = None if job.budget_s is None else Budget(job.budget_s)
    with interruptible():
        try:
            with contextlib.ExitStack() as stack:
                there = stack.enter_context(job.ground.open(job.study))
                store = job.store or _new_run(job, results, there)
                stack.enter_context(sole_writer(store))
                store.set_status("running")
                _announce(job, store)
                watcher = stack.enter_context(watch(job.study.id, job.steps, console))
                course = None if budget is None else Course(job.ground.steps(job.study), budget, Pace())
                outcome = there.run(store, job.steps, watcher, course)
        except KeyboardInterrupt:
            _say_interrupted(store, results)
            raise typer.Exit(EXIT_INTERRUPTED) from None
        return store, _finish(store, results, outcome, report=report)


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
        show_report(store)
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


def show_report(store: RunStore) -> None:
    """Write the report of a run, and print its summary."""
    # The drawing libraries take a while to load, and nothing is to wait for them before.
    from rocelab.report.model import RunModel  # noqa: PLC0415
    from rocelab.report.terminal import print_summary  # noqa: PLC0415
    from rocelab.report.write import write_report  # noqa: PLC0415

    with Console(stderr=True).status("writing the report") as status:
        files = write_report(store, progress=status.update)
    print_summary(Console(), RunModel.of(store), files.page)


def _folder_of(study: Study | VirtualStudy) -> str | None:
    """Where the paths of a study begin, if it has any to what a run needs."""
    if isinstance(study, Study):
        return study.folder if any(is_own(test) for test in study.test) else None
    files = [test.file for test in study.test if isinstance(test, TestTable) and test.file is not None]
    return files[0].folder if files else None


def _new_run(job: _Job, results: Path, there: Opened) -> RunStore:
    study = job.study
    started = datetime.now(UTC)
    found = there.provenance(shlex.join(["rocelab", *sys.argv[1:]]), job.steps)
    info = RunInfo(
        id=f"{started:%Y%m%d-%H%M%S}-{study.id}-{secrets.token_hex(2)}",
        study=study.id,
        title=study.title,
        fabric=job.ground.kind,
        status="running",
        started_at=now(),
        seed=study.seed,
        repetitions=study.repetitions,
        links=there.links,
        provenance=dataclasses.replace(found, notes=(*found.notes, *job.left_out)),
        planned_steps=measurement_count(job.steps),
        claims=tuple(study.claims),
        budget_minutes=None if job.budget_s is None else job.budget_s / 60,
        chosen_repetitions=job.chosen_repetitions,
        hosts=there.hosts,
        folder=_folder_of(study),
    )
    return RunStore.create(results, info, job.text)
