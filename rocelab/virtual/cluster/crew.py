"""A crew of the workers of a Dask cluster: reached by the address of its scheduler, or started as jobs of Slurm."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import distributed
from distributed.client import FutureCancelledError
from typing_extensions import override

from rocelab import __version__
from rocelab.fabric.base import FabricError
from rocelab.results import RunStore
from rocelab.stats import text
from rocelab.virtual.cluster import work
from rocelab.virtual.runner import AnyStep, Crew, Found, Job, SimulationWatcher, VirtualRunner

SLURM: Final = "slurm"
#: Jobs of Slurm under way or waiting, where the command line does not say how many.
JOBS_DEFAULT: Final = 10
#: How long a scheduler may take to answer.
_CONNECT_S: Final = 10
#: So long a run goes on while a cluster has no workers. Jobs of Slurm may have to wait longer.
_LONELY_S: Final = 60
_LOOK_EVERY_S: Final = 1.0
#: What other programs call the file in which a person says what a job of theirs is like.
_JOBQUEUE: Final = "~/.config/dask/jobqueue.yaml"


@dataclass(frozen=True, slots=True)
class Named:
    """What a person calls a cluster: an address, or Slurm with a number of jobs."""

    address: str | None
    jobs: int = JOBS_DEFAULT

    @classmethod
    def parse(cls, words: str) -> Named:
        """``tcp://host:8786``, ``host:8786``, ``slurm`` or ``slurm:4``. Raises FabricError."""
        kind, colon, count = words.partition(":")
        if kind != SLURM:
            return cls(words)
        if not colon:
            return cls(None)
        if not count.isdecimal() or int(count) == 0:
            raise FabricError(f"{words!r}: the number of jobs is 1 or more, such as slurm:4")
        return cls(None, int(count))


class Cluster:
    """A cluster that answers."""

    def __init__(self, client: distributed.Client, *, has_jobs: bool) -> None:
        """Use :func:`reached`."""
        self._client = client
        self._has_jobs = has_jobs

    @property
    def address(self) -> str:
        """Of the scheduler."""
        return str(self._client.scheduler.address)

    @property
    def workers(self) -> Sequence[str]:
        """Their addresses."""
        return sorted(self._client.scheduler_info(n_workers=-1)["workers"])

    @property
    def is_lost(self) -> bool:
        """Whether the scheduler does not answer any more."""
        return self._client.status not in ("running", "connecting")

    @property
    def has_jobs(self) -> bool:
        """Whether workers are jobs, which may have to wait."""
        return self._has_jobs

    def ask(self, steps: Sequence[AnyStep]) -> Mapping[str, work.Facts]:
        """What each worker has for the steps. Raises FabricError if a worker is not one for this rocelab."""
        if self._has_jobs:
            self._client.wait_for_workers(1)
        if not self.workers:
            raise FabricError(
                f"the cluster at {self.address} has no workers; start some with: dask worker {self.address}"
            )
        self._check_versions()
        found = self._client.run(work.facts, list(steps), on_error="return")
        for worker, answer in found.items():
            if isinstance(answer, Exception):
                raise FabricError(f"the worker {worker} does not understand the study: {_words(answer)}")
        other = {answer.host for answer in found.values() if answer.code != work.code()}
        if other:
            raise FabricError(
                f"rocelab of {text.listing(sorted(other))} has the version {__version__} as here, and other code or "
                "profiles; install the same on all machines"
            )
        return dict(found)

    def _check_versions(self) -> None:
        # Asked of Dask, as a worker without rocelab understands nothing of ours.
        found: Mapping[str, Any] = self._client.get_versions(packages=["rocelab"])["workers"]
        lines = []
        for worker, answer in sorted(found.items()):
            version = answer["packages"].get("rocelab")
            if version is None:
                lines.append(f"  {worker} has no rocelab: pip install 'rocelab[cluster]=={__version__}' there")
            elif version != __version__:
                lines.append(f"  {worker} has rocelab {version}, and here is {__version__}")
        if lines:
            raise FabricError(
                "workers of the cluster have another rocelab, which would simulate something else:\n" + "\n".join(lines)
            )

    def submit(self, point: work.Point) -> distributed.Future:
        """Have a worker carry out a point."""
        # Not by what it is: a point that failed before is to be carried out again.
        return self._client.submit(work.perform, point, pure=False)

    def end(self, run: str, futures: Sequence[distributed.Future]) -> None:
        """Leave nothing of a run on the workers."""
        # The scheduler may be what was lost.
        with contextlib.suppress(Exception):
            self._client.cancel(list(futures), force=True)
            self._client.run(work.end, run, on_error="ignore")


@contextlib.contextmanager
def reached(named: Named) -> Iterator[Cluster]:
    """A cluster that a person names, until the end of the block. Raises FabricError."""
    with contextlib.ExitStack() as stack:
        jobs = None if named.address is not None else stack.enter_context(_slurm(named.jobs))
        address = named.address or str(jobs.scheduler_address if jobs is not None else "")
        try:
            client = stack.enter_context(distributed.Client(address, timeout=_CONNECT_S, set_as_default=False))
        except (OSError, ValueError) as error:
            raise FabricError(
                f"no Dask scheduler answers at {address}: {_words(error)}. `dask scheduler` starts one, and says its "
                "address"
            ) from None
        yield Cluster(client, has_jobs=jobs is not None)


@contextlib.contextmanager
def _slurm(jobs: int) -> Iterator[Any]:
    try:
        import dask_jobqueue  # noqa: PLC0415, clusters with a scheduler of their own do not need it
    except ModuleNotFoundError as error:
        raise FabricError(f"Slurm needs dask-jobqueue ({error}): pip install 'rocelab[cluster]'") from None
    if shutil.which("sbatch") is None:
        raise FabricError(
            "there is no sbatch here: --cluster slurm is for a machine from which jobs of Slurm are submitted"
        )
    try:
        cluster = dask_jobqueue.SLURMCluster()
    except ValueError as error:
        raise FabricError(
            f"Dask does not know what a job of Slurm is to be like: {_words(error)}. Say it in {_JOBQUEUE}, under "
            "jobqueue: slurm: (cores, memory, and what your cluster needs, such as queue, account and walltime)"
        ) from None
    with cluster:
        # Jobs whose time is over are replaced, as long as there is something to do.
        cluster.adapt(minimum_jobs=1, maximum_jobs=jobs)
        yield cluster


class OnCluster(Crew):
    """Carries out the steps of a run on a cluster."""

    def __init__(
        self, cluster: Cluster, store: RunStore, versions: Mapping[str, str], watcher: SimulationWatcher | None
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._versions = versions
        self._watcher = watcher
        # Gives the samples of what no worker brings to an end.
        self._runner = VirtualRunner(store, None, versions)
        self._futures: list[distributed.Future] = []

    @override
    def begin(self, step: AnyStep, order: int) -> Job:
        point = work.Point(step, order, self._store.info, self._versions, work.code())
        future = self._cluster.submit(point)
        self._futures.append(future)
        return _Awaited(future, self._cluster, self._watcher, step, lambda future: self._found(future, step, order))

    def _found(self, future: distributed.Future, step: AnyStep, order: int) -> Found:
        try:
            answer: work.Answer = future.result()
        except distributed.KilledWorker as error:
            lost = f"workers that carried this out were lost, the last of them {error.last_worker.address}"
            words = f"{lost}: its log may say why (memory, or the time of its job)"
            return self._runner.failed(step, order, words)
        except work.OtherCodeError as error:
            raise FabricError(f"{error}; install the same on all machines") from None
        except FutureCancelledError:
            raise FabricError(_LOST.format(address=self._cluster.address)) from None
        except ModuleNotFoundError as error:
            raise FabricError(
                f"a worker of the cluster cannot carry out a step: {_words(error)}. All of them need rocelab "
                f"{__version__}: pip install 'rocelab[cluster]=={__version__}'"
            ) from None
        for name, content in answer.logs.items():
            (self._store.logs / name).write_bytes(content)
        return answer.samples, answer.error

    @override
    def stop(self) -> None:
        self._cluster.end(self._store.info.id, self._futures)


_LOST: Final = "the scheduler at {address} was lost; what was simulated is kept, and --resume goes on with the rest"


@dataclass(slots=True)
class _Awaited(Job):
    """A step that a worker carries out."""

    future: distributed.Future
    cluster: Cluster
    watcher: SimulationWatcher | None
    step: AnyStep
    found: Callable[[distributed.Future], Found]

    @override
    def done(self) -> bool:
        return str(self.future.status) == "finished"

    @override
    def result(self) -> Found:
        if self.watcher is not None:
            self.watcher.started(self.step)
        seen_s = time.monotonic()
        while self.future.status == "pending":
            # Also ends when the future is cancelled, which `found` says more of.
            with contextlib.suppress(TimeoutError, FutureCancelledError):
                self.future.exception(timeout=_LOOK_EVERY_S)
            if self.cluster.is_lost:
                raise FabricError(_LOST.format(address=self.cluster.address))
            if self.cluster.workers:
                seen_s = time.monotonic()
            else:
                self._wait_alone(time.monotonic() - seen_s)
        return self.found(self.future)

    def _wait_alone(self, alone_s: float) -> None:
        """Nobody is there to carry anything out."""
        if alone_s > _LONELY_S and not self.cluster.has_jobs:
            raise FabricError(
                f"the cluster at {self.cluster.address} has had no workers for {_LONELY_S} s; what was simulated is "
                "kept, and --resume goes on with the rest"
            )
        if self.watcher is not None:
            self.watcher.doing("waiting for workers")


def _words(error: BaseException) -> str:
    """The first line of what an error says."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
