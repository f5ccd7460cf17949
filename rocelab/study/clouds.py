"""Carries out one step on a cloud system: brings its daemons up, runs the client, and looks at what was really done.

A system stays up from step to step as long as they need the same on the same link and all its daemons are alive. Else
it is ended and started anew, from nothing: what its nodes kept is removed. So a daemon that is lost costs one step.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from typing_extensions import override

from rocelab import peers
from rocelab.fabric.base import Finished, Launcher, LaunchError, Node, Running
from rocelab.results import ParamValue, Sample
from rocelab.study.execution import (
    NO_REASON,
    Circumstances,
    Execution,
    Setting,
    StepExecutor,
    now,
    sample_of,
)
from rocelab.study.steps import CloudStep
from rocelab.tools import hbase, hdfs, spark, yarn
from rocelab.tools.base import Output, ToolError, Value, describe_exit, last_words
from rocelab.tools.cloud import (
    NODE_FOLDER,
    PHASE_MARK,
    Client,
    CloudReading,
    Daemon,
    Host,
    Layer,
    Place,
    Surroundings,
    Traffic,
    report,
)

#: How long the daemons of a layer may take to come up, all together; longer where more programs
#: want to run than can.
UP_LIMIT_S: Final = 55.0
_LONGER_MAX: Final = 4.0
#: How long something small may take: a format, a look at a folder.
_SHORT_LIMIT_S: Final = 30.0
_LOOK_EVERY_S: Final = 0.2
_LOG_LINES: Final = 12


class SystemDownError(Exception):
    """A daemon did not come up, or went away. The text has the end of its log."""


class _ClientHungError(SystemDownError):
    """A client had to be stopped: what it asked of the system may still be under way."""


@dataclass
class _System:
    """Daemons that are up, or are being brought up."""

    place: Place
    control: str | None
    """The congestion control of the connections between its daemons."""
    layers: list[Layer] = field(default_factory=list)
    running: list[tuple[Daemon, Running]] = field(default_factory=list)
    prepared: set[str] = field(default_factory=set)

    def lost(self) -> str | None:
        """Which daemon has ended, and what it said last."""
        for daemon, running in self.running:
            if (finished := running.poll()) is not None:
                return f"{daemon.name} ended ({_how(finished)}):\n{_tail(running)}"
        return None


class CloudExecutor(StepExecutor[CloudStep]):
    """Runs steps on the first nodes of a fabric."""

    @override
    def __init__(self, setting: Setting) -> None:
        self._nodes = setting.fabric.nodes
        self._launcher = setting.launcher
        self._logs = setting.logs
        self._doing = setting.doing
        self._system: _System | None = None
        self._count = 0

    @override
    def samples(
        self, step: CloudStep, execution: Execution[CloudReading], circumstances: Circumstances
    ) -> tuple[Sample, ...]:
        return _samples(step, execution, circumstances)

    @override
    def execute(self, step: CloudStep, log: Path) -> Execution[CloudReading]:
        """Run a step to its end. The system stays up for the next one, unless something of it went wrong."""
        started_at, started_s = now(), time.monotonic()
        reading, error, hung, command = None, None, False, ""
        good = False
        try:
            system = self._bring_up(step)
            self._prepare(system, step, log)
            client = step.method.client(system.place, log.resolve().with_suffix(""))
            command = shlex.join(client.argv)
            reading = self._measure(system, step, client, log)
            good = True
        except SystemDownError as failure:
            error, hung = str(failure), isinstance(failure, _ClientHungError)
        except ToolError as failure:
            error, good = str(failure), True
        except LaunchError as failure:
            error = str(failure)
        finally:
            # Also when it is interrupted: what is half done is of no use.
            if not good:
                self.close()
        return Execution(
            reading=reading,
            error=error,
            hung=hung,
            command=command,
            started_at=started_at,
            duration_s=time.monotonic() - started_s,
        )

    @override
    def close(self) -> None:
        # All daemons, the last that was started first.
        system, self._system = self._system, None
        if system is None:
            return
        # They have nothing to keep, and a tidy end of HBase takes half a minute.
        for _, running in system.running:
            running.signal(9)
        for _, running in reversed(system.running):
            with contextlib.suppress(LaunchError):
                running.stop()
        for host in system.place.hosts:
            with contextlib.suppress(LaunchError):
                self._short(host, ("rm", "-rf", NODE_FOLDER))

    # Daemons

    def _bring_up(self, step: CloudStep) -> _System:
        """A system with what the step needs, on its link and under its congestion control."""
        system = self._system
        wanted = step.method.layers
        fits = (
            system is not None
            and system.place.link == step.link.id
            and system.control == peers.control_of(step.variant)
            and len(system.place.hosts) == step.nodes
            and tuple(system.layers) == wanted[: len(system.layers)]
            and system.lost() is None
        )
        if system is None or not fits:
            self.close()
            self._system = system = _System(self._place(step), peers.control_of(step.variant))
        for layer in wanted[len(system.layers) :]:
            self._start(system, layer)
            system.layers.append(layer)
        return system

    def _place(self, step: CloudStep) -> Place:
        self._count += 1
        configuration = self._logs / f"system-{self._count:03}-{step.link.id}"
        hosts = tuple(_host(node, step.link.id) for node in self._nodes[: step.nodes])
        return Place(hosts, step.link.id, configuration.resolve())

    def _start(self, system: _System, layer: Layer) -> None:
        place = system.place
        for name, text in _files(layer, place).items():
            path = place.configuration / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        limit_s = UP_LIMIT_S * _crowding()
        deadline_s = time.monotonic() + limit_s
        for stage in daemons_of(layer, place):
            for daemon in stage:
                self._doing(f"starting {daemon.name}")
                self._start_daemon(system, daemon)
            try:
                self._await_daemons(system, stage, deadline_s)
            except TimeoutError as failure:
                raise SystemDownError(
                    f"{failure.args[0]} was not up within {limit_s:.2g} s:\n{failure.args[1]}"
                ) from None

    def _start_daemon(self, system: _System, daemon: Daemon) -> None:
        if daemon.before:
            done = self._short(daemon.host, daemon.before)
            if done.exit_status != 0:
                raise SystemDownError(f"{daemon.name} could not be prepared:\n{_last_lines(done.stdout + done.stderr)}")
        log = system.place.configuration / (daemon.name.replace(" ", "-") + ".log")
        running = self._launcher.start(self._nodes[daemon.host.index], daemon.argv, log=log)
        system.running.append((daemon, running))

    def _await_daemons(self, system: _System, stage: Sequence[Daemon], deadline_s: float) -> None:
        waiting = [(daemon, running) for daemon, running in system.running if daemon in stage and daemon.ready]
        while waiting:
            daemon, running = waiting[0]
            self._doing(f"waiting for {daemon.name}")
            if (lost := system.lost()) is not None:
                raise SystemDownError(lost)
            if len(re.findall(daemon.ready, "".join(running.output()))) >= daemon.ready_count:
                waiting.pop(0)
                continue
            if time.monotonic() > deadline_s:
                raise TimeoutError(daemon.name, _tail(running))
            time.sleep(_LOOK_EVERY_S)

    # Clients

    def _prepare(self, system: _System, step: CloudStep, log: Path) -> None:
        for name, client in step.method.preparation(system.place, log.resolve().with_suffix("")).items():
            if name in system.prepared:
                continue
            self._doing(f"preparing: {name}")
            finished, _ = self._run(system, client, step.time_limit_s, log)
            if finished.timed_out or finished.exit_status != 0:
                how = "hung and was stopped" if finished.timed_out else describe_exit(finished.exit_status)
                raise SystemDownError(f"the preparation '{name}' {how}: {_words(finished)}")
            system.prepared.add(name)

    def _measure(self, system: _System, step: CloudStep, client: Client, log: Path) -> CloudReading:
        place = system.place
        began_s = time.time()
        self._doing("")
        finished, traffic = self._run(system, client, step.time_limit_s, log)
        if finished.timed_out:
            raise _ClientHungError(f"it hung and was stopped ({finished.stopped_because}): {_words(finished)}")
        stored = tuple(self._stored_bytes(host, began_s) for host in place.workers)
        reading = step.method.read(place, Surroundings(_output(finished), tuple(traffic), stored))
        check = step.method.follow_up(place, reading)
        if check is not None:
            checked, _ = self._run(system, check, step.time_limit_s, log)
            report(step.method.tool, _output(checked))
        return reading

    def _run(self, system: _System, client: Client, limit_s: float, log: Path) -> tuple[Finished, list[Traffic]]:
        """Run a client to its end; SystemDownError if a daemon ends before it."""
        place = system.place
        recorder = _TrafficRecorder(self._launcher, self._nodes[: len(place.hosts)], place.link)
        recorder.look("")
        running = self._launcher.start(self._nodes[0], client.argv, env=client.env, log=log)
        deadline_s = time.monotonic() + limit_s
        try:
            while (finished := running.poll()) is None:
                phase = _phase(running)
                if recorder.look(phase) and phase:
                    self._doing(phase)
                if (lost := system.lost()) is not None:
                    raise SystemDownError(lost)
                if time.monotonic() > deadline_s:
                    finished = running.wait(0)
                    break
                time.sleep(_LOOK_EVERY_S)
        finally:
            running.stop()
        recorder.look(None)
        return finished, recorder.phases()

    def _stored_bytes(self, host: Host, since_s: float) -> int:
        """What the DataNode of a node has written since then: blocks, without their checksums."""
        command = ("find", hdfs.DATA_FOLDER, "-name", "blk_*", "!", "-name", "*.meta", "-newermt", f"@{since_s:.3f}")
        done = self._short(host, (*command, "-printf", "%s\\n"))
        return sum(int(line) for line in done.stdout.split())

    def _short(self, host: Host, argv: Sequence[str]) -> Finished:
        return self._launcher.start(self._nodes[host.index], argv).wait(_SHORT_LIMIT_S * _crowding())


class _TrafficRecorder:
    """What leaves the nodes, look by look, and in which phase of the client that was."""

    def __init__(self, launcher: Launcher, nodes: Sequence[Node], link: str) -> None:
        self._launcher = launcher
        self._nodes = nodes
        self._link = link
        self._started_s = time.monotonic()
        self._looks: list[tuple[str, float, tuple[int, ...]]] = []

    def look(self, phase: str | None) -> bool:
        """Note the counters; None: the phase of the last look. Tells whether the phase is a new one."""
        last = self._looks[-1][0] if self._looks else ""
        sent = tuple(self._launcher.sent_bytes(node, node.interfaces[self._link]) for node in self._nodes)
        self._looks.append((last if phase is None else phase, time.monotonic() - self._started_s, sent))
        return phase is not None and phase != last

    def phases(self) -> list[Traffic]:
        """The looks by phase; each begins with the last of the one before, so that nothing is between them."""
        made: list[Traffic] = []
        start = 0
        for at in range(1, len(self._looks) + 1):
            if at == len(self._looks) or self._looks[at][0] != self._looks[start][0]:
                part = self._looks[max(0, start - 1) : at]
                made.append(Traffic(self._looks[start][0], tuple(s for _, s, _ in part), tuple(b for _, _, b in part)))
                start = at
        return made


def _crowding() -> float:
    """How many times as many programs want to run as can, between 1 and a bound."""
    return min(_LONGER_MAX, max(1.0, os.getloadavg()[0] / len(os.sched_getaffinity(0))))


def _host(node: Node, link: str) -> Host:
    return Host(node.index, node.name, f"{node.name}.{link}", node.addresses[link], node.interfaces[link])


def _files(layer: Layer, place: Place) -> dict[str, str]:
    makers = {"hdfs": hdfs.files, "yarn": yarn.files, "hbase": hbase.files}
    return dict(makers[layer](place)) if layer in makers else {}


def daemons_of(layer: Layer, place: Place) -> Sequence[Sequence[Daemon]]:
    """The daemons of a layer, stage by stage."""
    makers = {"hdfs": hdfs.daemons, "yarn": yarn.daemons, "hbase": hbase.daemons, "spark": spark.daemons}
    return makers[layer](place)


def _phase(running: Running) -> str:
    lines = [line for line in running.output()[0].splitlines() if line.startswith(PHASE_MARK)]
    return lines[-1].removeprefix(PHASE_MARK) if lines else ""


def _how(finished: Finished) -> str:
    status = finished.exit_status
    return f"killed by signal {-status}" if status < 0 else f"exit status {status}"


def _output(finished: Finished) -> Output:
    return Output(finished.stdout, finished.stderr, finished.exit_status)


def _words(finished: Finished) -> str:
    return last_words(_output(finished), lines=_LOG_LINES)


def _tail(running: Running) -> str:
    return _last_lines("".join(running.output()))


def _last_lines(said: str) -> str:
    return "\n".join(said.splitlines()[-_LOG_LINES:]) or "(it said nothing)"


def _samples(step: CloudStep, execution: Execution[CloudReading], circumstances: Circumstances) -> tuple[Sample, ...]:
    """A sample for every value; exactly one, without a value, if the step failed."""
    reading = execution.reading
    params: dict[str, ParamValue] = {**step.method.params, **(reading.params if reading else {})}
    values: tuple[Value | None, ...] = reading.values if reading else (None,)
    return tuple(
        sample_of(
            step,
            execution,
            circumstances,
            key=step.key,
            main_metric=step.method.main_metric,
            params=params,
            value=value,
            error=None if value else execution.error or NO_REASON,
        )
        for value in values
    )
