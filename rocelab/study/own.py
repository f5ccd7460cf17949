"""Carries out programs of one's own that are no MPI jobs."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from typing_extensions import override

from rocelab.fabric.base import Finished, LaunchError, Node, Running
from rocelab.results import Sample
from rocelab.study.execution import (
    NO_REASON,
    Circumstances,
    Execution,
    Setting,
    StepExecutor,
    now,
    sample_of,
)
from rocelab.study.own_steps import OwnStep
from rocelab.tools.base import Output, ToolError, Value, last_words

#: How long a server may take until it can be asked: it may be a database that reads what it has.
_READY_LIMIT_S: Final = 60.0
_LOOK_EVERY_S: Final = 0.05


class OwnExecutor(StepExecutor[OwnStep]):
    """Runs programs on the first nodes of a fabric."""

    @override
    def __init__(self, setting: Setting) -> None:
        self._fabric = setting.fabric
        self._launcher = setting.launcher

    @override
    def samples(self, step: OwnStep, execution: Execution[Value], circumstances: Circumstances) -> tuple[Sample, ...]:
        error = None if execution.reading is not None else execution.error or NO_REASON
        sample = sample_of(
            step,
            execution,
            circumstances,
            key=step.key,
            main_metric=step.program.main_metric,
            params={"nodes": step.nodes, "run": step.run},
            value=execution.reading,
            error=error,
        )
        return (sample,)

    @override
    def execute(self, step: OwnStep, log: Path | None) -> Execution[Value]:
        started_at, started_s = now(), time.monotonic()
        running: list[Running] = []
        value, error, hung, argv = None, None, False, [*step.program.command]
        try:
            nodes = self._fabric.nodes[: step.nodes]
            words = self._words(step, nodes)
            argv = step.program.filled(step.program.command, words[0])
            output, hung = (self._pair if step.run == "pair" else self._on_each)(step, nodes, words, log, running)
            value = step.program.read(output)
        except (LaunchError, ToolError) as failure:
            error = str(failure)
        finally:
            # Those that have ended are not there any more.
            for each in reversed(running):
                with suppress(LaunchError):
                    each.stop()
        if hung and value is None:
            error = f"it hung and was stopped after {step.time_limit_s:g} s; {error}"
        return Execution(
            reading=value,
            error=error,
            hung=hung,
            command=shlex.join([*(f"{name}={each}" for name, each in step.env.items()), *argv]),
            started_at=started_at,
            duration_s=time.monotonic() - started_s,
        )

    def _words(self, step: OwnStep, nodes: Sequence[Node]) -> list[dict[str, str]]:
        """What stands for addresses and devices, on each node."""
        link = step.link.id
        server = nodes[1] if step.run == "pair" else nodes[0]
        common = {
            "server": server.addresses[link],
            "client": nodes[0].addresses[link],
            "first": nodes[0].addresses[link],
            "port": str(self._launcher.free_ports(server, 1)[0]),
            "nodes": str(len(nodes)),
        }
        made = []
        for rank, node in enumerate(nodes):
            interface = node.interfaces[link]
            device = node.devices.get(link)
            name = f"urxe_{interface}" if step.device else device.device if device else ""
            made.append({**common, "rank": str(rank), "interface": interface, "device": name})
        return made

    def _launch(
        self, step: OwnStep, node: Node, nodes: Sequence[Node], argv: Sequence[str], log: Path | None
    ) -> Running:
        wrapper = (step.device.name, "run", "--") if step.device else ()
        cores = self._launcher.own_cores(node, nodes)
        return self._launcher.start(node, [*wrapper, *argv], env=step.env, cores=cores, log=log)

    def _pair(
        self,
        step: OwnStep,
        nodes: Sequence[Node],
        words: Sequence[Mapping[str, str]],
        log: Path | None,
        running: list[Running],
    ) -> tuple[Output, bool]:
        assert step.program.server is not None
        argv = step.program.filled(step.program.server, words[1])
        server = self._launch(step, nodes[1], nodes, argv, log)
        running.append(server)
        if step.ready_text is None:
            port = int(words[1]["port"])
            self._launcher.wait_until_listening(nodes[1], server, port, timeout_s=_READY_LIMIT_S)
        else:
            _wait_until_printed(nodes[1], server, step.ready_text)
        client = self._launch(step, nodes[0], nodes, step.program.filled(step.program.command, words[0]), log)
        running.append(client)
        end = client.wait(step.time_limit_s)
        early = server.poll()
        if early is not None and early.exit_status != 0:
            said = last_words(Output(early.stdout, early.stderr, early.exit_status))
            raise ToolError(f"the server ended with exit status {early.exit_status}: {said}")
        served = early or server.stop()
        return _output(end, end.wall_s, end.cpu_s + served.cpu_s), end.timed_out

    def _on_each(
        self,
        step: OwnStep,
        nodes: Sequence[Node],
        words: Sequence[Mapping[str, str]],
        log: Path | None,
        running: list[Running],
    ) -> tuple[Output, bool]:
        deadline_s = time.monotonic() + step.time_limit_s
        for node, of_node in zip(nodes, words, strict=True):
            argv = step.program.filled(step.program.command, of_node)
            running.append(self._launch(step, node, nodes, argv, log))
        ends = [each.wait(max(0.0, deadline_s - time.monotonic())) for each in running]
        hung = any(end.timed_out for end in ends)
        for node, end in zip(nodes, ends, strict=True):
            if end.exit_status != 0 and not hung:
                said = last_words(Output(end.stdout, end.stderr, end.exit_status))
                raise ToolError(f"on {node.name} it ended with exit status {end.exit_status}: {said}")
        return _output(ends[0], max(end.wall_s for end in ends), sum(end.cpu_s for end in ends)), hung


def _output(end: Finished, wall_s: float, cpu_s: float) -> Output:
    return Output(end.stdout, end.stderr, end.exit_status, wall_s, cpu_s)


def _wait_until_printed(node: Node, server: Running, text: str) -> None:
    deadline_s = time.monotonic() + _READY_LIMIT_S
    while not re.search(text, "".join(server.output()), re.MULTILINE):
        if (ended := server.poll()) is not None:
            raise LaunchError(f"{node.name}: the server ended (exit status {ended.exit_status})\n{ended.stderr}")
        if time.monotonic() > deadline_s:
            raise LaunchError(f"{node.name}: the server did not print {text!r} within {_READY_LIMIT_S:g} s")
        time.sleep(_LOOK_EVERY_S)
