"""Carries out one step of an MPI program: mpirun on the first node, its time limit, and what is left behind."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rocelab.fabric.base import Fabric, Finished, Launcher, LaunchError
from rocelab.launch import mpi
from rocelab.study.execution import now
from rocelab.study.steps import JobStep
from rocelab.tools.base import JobReading, Output, ToolError, describe_exit, last_words


@dataclass(frozen=True, slots=True)
class JobExecution:
    """How a job went. A job that did not end well may still have measured some of its sizes."""

    reading: JobReading
    error: str | None
    """Why sizes that are not in the reading are not."""
    hung: bool
    """It had to be stopped at its time limit."""
    finished: Finished | None
    command: str
    started_at: str
    duration_s: float


class JobExecutor:
    """Runs MPI programs on the first nodes of a fabric."""

    def __init__(self, fabric: Fabric, launcher: Launcher) -> None:
        self._fabric = fabric
        self._launcher = launcher

    def execute(self, step: JobStep, log: Path | None) -> JobExecution:
        """Run a step to its end. Nothing of it is left afterwards, also when this is interrupted."""
        started_at, started_s = now(), time.monotonic()
        nodes = self._fabric.nodes[: step.nodes]
        job = mpi.Job(
            argv=step.method.command(step.request),
            hosts=[node.name for node in nodes],
            interface=nodes[0].interfaces[step.link.id],
            ranks_per_node=step.ranks_per_node,
            mapping=step.mapping,
            wrapper=(step.device.name, "run", "--") if step.device else (),
        )
        env = mpi.environment(job, step.transport)
        finished, argv = None, []
        try:
            cores = _cores_of(job.hosts, sorted(os.sched_getaffinity(0)))
            with self._launcher.remote_shell(env, cores) as shell:
                argv = mpi.command(step.mpi, job, step.transport, shell)
                own = cores.get(nodes[0].name, ())
                running = self._launcher.start(nodes[0], argv, env={**env, **shell.env}, cores=own, log=log)
                try:
                    finished = running.wait(step.time_limit_s)
                finally:
                    if finished is None:
                        running.stop()
            reading, error = _judge(step, finished)
        except LaunchError as failure:
            reading, error = JobReading({}), str(failure)
        return JobExecution(
            reading=reading,
            error=error,
            hung=finished is not None and finished.timed_out,
            finished=finished,
            # The environment is part of what was run: it says what the program talked over.
            command=" ".join([*(f"{name}={shlex.quote(value)}" for name, value in env.items()), shlex.join(argv)]),
            started_at=started_at,
            duration_s=time.monotonic() - started_s,
        )


def _cores_of(hosts: Sequence[str], cores: Sequence[int]) -> dict[str, Sequence[int]]:
    """The share of this machine that each node has as its own; none where there are more nodes than cores.

    Processes of two nodes that poll would else meet on one core and stay there, each waiting for the other.
    """
    each = len(cores) // len(hosts)
    return {host: cores[at * each : (at + 1) * each] for at, host in enumerate(hosts)} if each else {}


def _judge(step: JobStep, finished: Finished) -> tuple[JobReading, str | None]:
    """What was measured, and what went wrong besides."""
    output = Output(finished.stdout, finished.stderr, finished.exit_status)
    reading, problem = _read(step, output)
    if finished.timed_out:
        return reading, f"it hung and was stopped ({finished.stopped_because}): {last_words(output)}"
    if finished.exit_status != 0:
        problem = f"mpirun {describe_exit(finished.exit_status)}: {last_words(output)}"
        # Who fails after the last size has failed in something that every size depends on.
        complete = set(step.request.points) <= reading.values.keys()
        return (JobReading({}) if complete else reading), problem
    return reading, problem


def _read(step: JobStep, output: Output) -> tuple[JobReading, str]:
    try:
        return step.method.read(step.request, output), f"{step.tool} did not report it"
    except ToolError as failure:
        return JobReading({}), str(failure)
