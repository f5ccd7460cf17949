"""Carries out rounds of all pairs: in a round each node is the client or the server of one program pair, all at once.

A pair that fails is a failed sample, and the others count. A node that hangs in round after round would cost a time
limit in each of them, so its pairs are given up after a few.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from typing_extensions import override

from rocelab.fabric.base import LaunchError, Node
from rocelab.results import ParamValue, Sample
from rocelab.study.execution import (
    NO_REASON,
    Circumstances,
    Execution,
    Measured,
    Setting,
    StepExecutor,
    now,
    sample_of,
)
from rocelab.study.pair_runner import PairReading, PairRunner
from rocelab.study.rounds import Pair
from rocelab.study.steps import RoundStep
from rocelab.tools.base import MAIN_METRIC, Value

#: A node whose pairs hung this often in a row would go on like that.
_HANGS_MAX: Final = 3
#: What stands for a pair, of the values that its program reports.
_TYPICAL: Final = ("median", "mean")


@dataclass(frozen=True, slots=True)
class RoundReading:
    """How each pair of a round went."""

    pairs: Mapping[Pair, Execution[PairReading]]


class RoundExecutor(StepExecutor[RoundStep]):
    """Runs rounds on the nodes of a fabric."""

    @override
    def __init__(self, setting: Setting) -> None:
        self._nodes = setting.fabric.nodes
        self._launcher = setting.launcher
        self._hangs: Counter[int] = Counter()

    @override
    def measure(self, step: RoundStep, log: Path, circumstances: Circumstances) -> Measured:
        execution = self.execute(step, log)
        assert execution.reading is not None
        paces = [each.reading.pace(step.pair) for each in execution.reading.pairs.values() if each.reading is not None]
        samples = self.samples(step, execution, circumstances)
        return Measured(samples, execution.hung, median(paces) if paces else None)

    @override
    def execute(self, step: RoundStep, log: Path) -> Execution[RoundReading]:
        started_at = now()
        taking_part = [self._nodes[at] for pair in step.pairs for at in pair]

        def cores(node: Node, link: str) -> Collection[int]:
            # Where nodes share a machine, and have no cores of their own, the kernel spreads the
            # programs better.
            own = self._launcher.own_cores(node, taking_part)
            core = self._launcher.core(node, link)
            return own and (core if core in own else own[0],)

        runners = {
            pair: PairRunner(self._nodes[pair[0]], self._nodes[pair[1]], self._launcher, cores) for pair in step.pairs
        }
        pool = ThreadPoolExecutor(len(runners), thread_name_prefix="pair")
        try:
            going_on = {
                pair: pool.submit(self._execute_pair, step, pair, runner, log) for pair, runner in runners.items()
            }
            done = {pair: each.result() for pair, each in going_on.items()}
        except BaseException:
            for runner in runners.values():
                runner.abandon()
            raise
        finally:
            pool.shutdown()
        for pair, each in done.items():
            for node in () if self._given_up(pair) else pair:
                self._hangs[node] = self._hangs[node] + 1 if each.hung else 0
        first = next(iter(done.values()))
        return Execution(
            reading=RoundReading(done),
            hung=all(each.hung for each in done.values()),
            command=first.command,
            started_at=started_at,
            duration_s=max(each.duration_s for each in done.values()),
        )

    def _execute_pair(self, step: RoundStep, pair: Pair, runner: PairRunner, log: Path) -> Execution[PairReading]:
        started_at = now()
        if given_up := self._given_up(pair):
            why = f"not run: what was measured with {given_up} hung in {_HANGS_MAX} rounds before it"
            return Execution(error=why, started_at=started_at)
        try:
            return runner.execute(step.pair, log)
        except LaunchError as failure:
            return Execution(error=str(failure), started_at=started_at)

    def _given_up(self, pair: Pair) -> str | None:
        """The node of a pair because of which the pair is not run."""
        return next((self._nodes[node].name for node in pair if self._hangs[node] >= _HANGS_MAX), None)

    @override
    def samples(
        self, step: RoundStep, execution: Execution[RoundReading], circumstances: Circumstances
    ) -> tuple[Sample, ...]:
        if execution.reading is not None:
            by_pair = execution.reading.pairs
        else:
            error = execution.error or NO_REASON
            by_pair = {pair: Execution(error=error, started_at=execution.started_at) for pair in step.pairs}
        return tuple(self._sample(step, pair, each, circumstances) for pair, each in by_pair.items())

    def _sample(
        self, step: RoundStep, pair: Pair, execution: Execution[PairReading], circumstances: Circumstances
    ) -> Sample:
        metric, unit = MAIN_METRIC[step.pair.test]
        client, server = (self._nodes[at].name for at in pair)
        params: dict[str, ParamValue] = {"client": client, "server": server, "messages": step.pair.messages}
        for end, at in zip(("client_switch", "server_switch"), pair, strict=True):
            if (switch := step.link.switch_of(at)) is not None:
                params[end] = switch
        value, error = None, None
        if execution.reading is None:
            error = execution.error or NO_REASON
        else:
            report = execution.reading.report
            params |= {"active_s": report.active_s, **report.params}
            found = _typical(report.values, metric)
            # Each pair is a statistic of its own: they are values of one metric in one measurement.
            value = Value(metric, unit, f"{client} to {server}", found.value)
            params["statistic"] = found.statistic
        return sample_of(
            step,
            execution,
            circumstances,
            key=step.key,
            main_metric=(metric, unit),
            params=params,
            value=value,
            error=error,
        )


def _typical(values: Sequence[Value], metric: str) -> Value:
    of_metric = {value.statistic: value for value in values if value.metric == metric}
    return next((of_metric[name] for name in _TYPICAL if name in of_metric), next(iter(of_metric.values())))
