"""Carries out one step of an MPI program: mpirun on the first node, its time limit, and what is left behind."""

from __future__ import annotations

import shlex
import time
from pathlib import Path

from typing_extensions import override

from rocelab.fabric.base import Finished, LaunchError
from rocelab.launch import mpi
from rocelab.results import ParamValue, Sample
from rocelab.study.execution import (
    NO_REASON,
    Circumstances,
    Execution,
    Setting,
    StepExecutor,
    now,
    sample_of,
    until_undisturbed,
)
from rocelab.study.steps import JobStep
from rocelab.tools.base import JobReading, Output, ToolError, describe_exit, last_words


class JobExecutor(StepExecutor[JobStep]):
    """Runs MPI programs on the first nodes of a fabric."""

    @override
    def __init__(self, setting: Setting) -> None:
        self._fabric = setting.fabric
        self._launcher = setting.launcher

    @override
    def samples(
        self, step: JobStep, execution: Execution[JobReading], circumstances: Circumstances
    ) -> tuple[Sample, ...]:
        return _samples(step, execution, circumstances)

    @override
    def execute(self, step: JobStep, log: Path | None) -> Execution[JobReading]:
        """Run a step to its end. A job that did not end well may still have measured some of its sizes."""
        return until_undisturbed(lambda: self._attempt(step, log))

    def _attempt(self, step: JobStep, log: Path | None) -> Execution[JobReading]:
        started_at, started_s = now(), time.monotonic()
        nodes = self._fabric.nodes[: step.nodes]
        # Processes of two nodes that poll would else meet on one core and stay there, each waiting
        # for the other.
        cores = {node.name: own for node in nodes if (own := self._launcher.own_cores(node, nodes))}
        job = mpi.Job(
            argv=step.method.command(step.request),
            hosts=[node.name for node in nodes],
            interfaces=[node.interfaces[step.link.id] for node in nodes],
            devices=[node.devices[step.link.id] for node in nodes if step.link.id in node.devices],
            ranks_per_node=step.ranks_per_node,
            mapping=step.mapping,
            cores=sum(map(len, cores.values())),
            wrapper=(step.device.name, "run", "--") if step.device else (),
        )
        env = {**mpi.environment(step.mpi, job, step.transport), **step.env}
        finished, argv = None, []
        try:
            with self._launcher.remote_shell(env, cores) as shell:
                argv = mpi.command(step.mpi, job, shell)
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
        return Execution(
            reading=reading,
            error=error,
            hung=finished is not None and finished.timed_out,
            disturbed=finished is not None and not reading.values and mpi.lost_its_start(step.mpi, finished.stderr),
            # The environment is part of what was run: it says what the program talked over.
            command=" ".join([*(f"{name}={shlex.quote(value)}" for name, value in env.items()), shlex.join(argv)]),
            started_at=started_at,
            duration_s=time.monotonic() - started_s,
        )


def _judge(step: JobStep, finished: Finished) -> tuple[JobReading, str | None]:
    """What was measured, and what went wrong besides."""
    output = Output(finished.stdout, finished.stderr, finished.exit_status, finished.wall_s, finished.cpu_s)
    reading, problem = _read(step, output)
    if finished.timed_out:
        return reading, f"it hung and was stopped ({finished.stopped_because}): {last_words(output)}"
    if finished.exit_status != 0:
        problem = f"mpirun {describe_exit(finished.exit_status)}: {last_words(output)}"
        # A program that fails after the last size has failed in something that every size depends
        # on.
        complete = set(step.request.points) <= reading.values.keys()
        return (JobReading({}) if complete else reading), problem
    return reading, problem


def _read(step: JobStep, output: Output) -> tuple[JobReading, str]:
    try:
        return step.method.read(step.request, output), f"{step.tool} did not report it"
    except ToolError as failure:
        return JobReading({}), str(failure)


def _samples(step: JobStep, execution: Execution[JobReading], circumstances: Circumstances) -> tuple[Sample, ...]:
    """A sample for every value of every size; one without a value for each size that was not measured."""
    params: dict[str, ParamValue] = {
        "nodes": step.nodes,
        "ranks": step.ranks,
        "ranks_per_node": step.ranks_per_node,
        "mapping": step.mapping,
        "mpi": step.mpi.title,
    }
    if step.request.iterations is not None:
        params["iterations"] = step.request.iterations
    reading = execution.reading or JobReading({})
    made: list[Sample] = []
    for key in step.keys:
        values = reading.values.get(key.size_bytes, ())
        error = reading.errors.get(key.size_bytes)
        if error is None and not values:
            error = execution.error or NO_REASON
        made += [
            sample_of(
                step,
                execution,
                circumstances,
                key=key,
                main_metric=step.method.main_metric,
                params=params,
                value=value,
                error=error,
            )
            for value in (values if error is None else (None,))
        ]
    return tuple(made)
