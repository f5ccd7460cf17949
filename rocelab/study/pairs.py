"""Carries out steps of the network level: server, wait until it listens, client, time limit, what both ends leave."""

from __future__ import annotations

import contextlib
import shlex
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from typing_extensions import override

from rocelab import peers
from rocelab.fabric.base import Finished, LaunchError, Node, Running
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
from rocelab.study.startup import StartupCosts
from rocelab.study.steps import PairStep
from rocelab.tools.base import (
    CONTROL_PARAMS,
    CPU_TEST,
    MAIN_METRIC,
    CpuTime,
    Output,
    Reading,
    Request,
    ToolError,
    Value,
    last_words,
)

_MIB = 1 << 20
#: The CPU time of a start varies by a few milliseconds; what is left of a shorter region would be that.
_REGION_MIN_S = 0.005

#: How long a server may take to listen. It only has to start; a client cannot come earlier.
_LISTEN_LIMIT_S = 10.0
#: How long a server may take to end after its client has ended.
_SERVER_END_LIMIT_S = 3.0
#: From starting a client to its sleep; a few milliseconds on an idle machine.
_SETTLE_S = 0.02


@dataclass(frozen=True, slots=True)
class PairReading:
    """What both ends said, and what they cost."""

    report: Reading
    client: Finished
    server: Finished


@dataclass
class _Pair:
    """The two ends of a step, as far as they were started."""

    request: Request
    command: tuple[str, ...]
    log: Path | None
    server: Running | None = None
    client: Running | None = None
    held: bool = False
    """The client is stopped (SIGSTOP)."""
    client_end: Finished | None = None
    server_end: Finished | None = None
    error: str | None = None
    hung: bool = False


class PairExecutor(StepExecutor[PairStep]):
    """Runs steps on the first two nodes of a fabric: the client on the first, the server on the second."""

    @override
    def __init__(self, setting: Setting) -> None:
        self._client_node, self._server_node = setting.fabric.nodes[0], setting.fabric.nodes[1]
        self._launcher = setting.launcher
        self._waiting: dict[PairStep, _Pair] = {}
        pairs = [step for step in setting.steps if isinstance(step, PairStep)]
        size_max_bytes = max((step.size_bytes for step in pairs if step.test == CPU_TEST), default=1)
        self._startups = StartupCosts(self.cpu_times, setting.fabric.links, size_max_bytes)

    @override
    def measure(self, step: PairStep, log: Path, circumstances: Circumstances) -> Measured:
        execution = self.execute(step, log)
        pace, startup = None, None
        if execution.reading is not None:
            pace = execution.reading.report.active_s / (step.messages * step.message_s)
            if step.test == CPU_TEST and step.method.cpu_from == "processes":
                startup = self._startups.of(step)
        return Measured(_samples(step, execution, startup, circumstances), execution.hung, pace)

    @override
    def samples(
        self, step: PairStep, execution: Execution[PairReading], circumstances: Circumstances
    ) -> tuple[Sample, ...]:
        return _samples(step, execution, None, circumstances)

    @property
    @override
    def is_waiting(self) -> bool:
        return bool(self._waiting)

    @override
    def prepare(self, step: PairStep, log: Path | None) -> None:
        # The client is held, so that it cannot begin before `execute` lets it; its sleep runs out all the same.
        # This returns when both have settled, so that their start does not disturb what is measured meanwhile.
        pair = self._pair(step, log)
        self._waiting[step] = pair
        self._guarded(pair, partial(self._hold, step, pair))

    @override
    def execute(self, step: PairStep, log: Path | None) -> Execution[PairReading]:
        """Run a step to its end. Both ends are gone afterwards, also when this is interrupted."""
        started_at, started_s = now(), time.monotonic()
        pair = self._waiting.pop(step, None) or self._pair(step, log)
        try:
            self._guarded(pair, partial(self._carry_out, step, pair))
            self._guarded(pair, partial(self._await_ends, step, pair))
        finally:
            # Nothing is left to end after a good step.
            self._discard(pair)
        reading, error = None, pair.error
        if error is None:
            reading, error = _judge(step, pair)
        return Execution(
            reading=reading,
            error=error,
            hung=pair.hung or any(end is not None and end.timed_out for end in (pair.client_end, pair.server_end)),
            command=shlex.join(pair.command),
            started_at=started_at,
            duration_s=time.monotonic() - started_s,
        )

    @override
    def close(self) -> None:
        self.withdraw()

    @override
    def withdraw(self) -> None:
        for pair in self._waiting.values():
            self._discard(pair)
        self._waiting.clear()

    def cpu_times(self, step: PairStep) -> CpuTime | None:
        """The CPU time of both ends of a step, from their start to their end."""
        reading = self.execute(step, None).reading
        return None if reading is None else CpuTime(reading.client.cpu_s, reading.server.cpu_s)

    def _pair(self, step: PairStep, log: Path | None) -> _Pair:
        request = self._request(step)
        return _Pair(request, tuple(step.method.client(request)), log)

    @staticmethod
    def _guarded(pair: _Pair, action: Callable[[], None]) -> None:
        """A program that cannot be started fails its step, not the study."""
        if pair.error is not None:
            return
        try:
            action()
        except LaunchError as failure:
            pair.error = str(failure)
            # A server that is there and does not listen would go on like this.
            pair.hung = pair.server is not None and _goes_on(pair.server)

    def _start(self, step: PairStep, pair: _Pair) -> None:
        pair.server = self._launch(self._server_node, step.link.id, step.method.server(pair.request), pair.log)
        limit_s = min(_LISTEN_LIMIT_S, step.time_limit_s)
        self._launcher.wait_until_listening(self._server_node, pair.server, pair.request.port, timeout_s=limit_s)
        pair.client = self._launch(self._client_node, step.link.id, pair.command, pair.log)

    def _hold(self, step: PairStep, pair: _Pair) -> None:
        self._start(step, pair)
        time.sleep(_SETTLE_S)
        assert pair.client is not None
        pair.client.signal(signal.SIGSTOP)
        pair.held = True

    def _release(self, pair: _Pair) -> None:
        if pair.held:
            pair.held = False
            assert pair.client is not None
            pair.client.signal(signal.SIGCONT)

    def _carry_out(self, step: PairStep, pair: _Pair) -> None:
        if pair.client is None:
            self._start(step, pair)
        self._release(pair)
        assert pair.client is not None
        pair.client.wait(step.time_limit_s)

    @staticmethod
    def _await_ends(step: PairStep, pair: _Pair) -> None:
        """Wait for the server too, if it is one that ends by itself after a client that did well."""
        assert pair.client is not None
        assert pair.server is not None
        pair.client_end = client = pair.client.wait(0)
        if step.method.server_ends and not client.timed_out and client.exit_status == 0:
            pair.server_end = pair.server.wait(_SERVER_END_LIMIT_S)
        else:
            pair.server_end = pair.server.stop()

    def _discard(self, pair: _Pair) -> None:
        """End whatever still runs. Does not fail: an interruption may have come in the middle of anything."""
        self._release(pair)
        for running in (pair.client, pair.server):
            if running is not None:
                with contextlib.suppress(LaunchError):
                    running.stop()

    def _request(self, step: PairStep) -> Request:
        return Request(
            size_bytes=step.size_bytes,
            messages=step.messages,
            server_address=self._server_node.addresses[step.link.id],
            client_interface=self._client_node.interfaces[step.link.id],
            server_interface=self._server_node.interfaces[step.link.id],
            port=self._launcher.free_ports(self._server_node, 1)[0],
            client_device=self._client_node.devices.get(step.link.id),
            server_device=self._server_node.devices.get(step.link.id),
        )

    def _launch(self, node: Node, link: str, argv: Sequence[str], log: Path | None) -> Running:
        return self._launcher.start(node, argv, cores=(self._launcher.core(node, link),), log=log)


def _goes_on(program: Running) -> bool:
    try:
        return program.poll() is None
    except LaunchError:
        return False  # It is lost, with its node.


def _judge(step: PairStep, pair: _Pair) -> tuple[PairReading | None, str | None]:
    client, server = pair.client_end, pair.server_end
    assert client is not None
    assert server is not None
    for end, finished in (("client", client), ("server", server)):
        # A program that had to be stopped says nothing worth more than the reason.
        if finished.timed_out:
            return None, f"the {end} hung and was stopped ({finished.stopped_because}): {last_words(_output(finished))}"
    try:
        reading = step.method.read(pair.request, _output(client), _output(server))
    except ToolError as error:
        return None, str(error)
    wrong = _wrong_control(step, reading)
    return (PairReading(reading, client, server), None) if wrong is None else (None, wrong)


def _wrong_control(step: PairStep, reading: Reading) -> str | None:
    """Says that a connection had another congestion control than its step, where the program tells."""
    wanted = peers.control_of(step.variant)
    if wanted in (None, peers.DEFAULT):
        return None
    for end, param in CONTROL_PARAMS.items():
        found = reading.params.get(param, wanted)
        if found != wanted:
            return f"the {end}'s connection had the congestion control {found}, not {wanted}"
    return None


def _output(finished: Finished) -> Output:
    # A server that was stopped on purpose has done nothing wrong.
    stopped = finished.stopped_because is not None and not finished.timed_out
    return Output(finished.stdout, finished.stderr, 0 if stopped else finished.exit_status)


def _samples(
    step: PairStep, execution: Execution[PairReading], startup: CpuTime | None, circumstances: Circumstances
) -> tuple[Sample, ...]:
    """A sample for every value; exactly one, without a value, if the step failed."""
    main = MAIN_METRIC[step.test]

    def sample(params: Mapping[str, ParamValue], value: Value | None, error: str | None = None) -> Sample:
        return sample_of(
            step, execution, circumstances, key=step.key, main_metric=main, params=params, value=value, error=error
        )

    found = execution.reading
    if found is None:
        return (sample({"messages": step.messages}, None, execution.error or NO_REASON),)
    reading = found.report
    params: dict[str, ParamValue] = {"messages": step.messages, "active_s": reading.active_s, **reading.params}
    if step.test != CPU_TEST:
        values = list(reading.values)
    else:
        params.update({value.metric: value.value for value in reading.values if value.metric == "bandwidth_mbps"})
        values = list(_cpu_values(found, startup, params))
        if not values:
            return (
                sample(params, None, "the CPU time of this measurement cannot be told apart from that of its start"),
            )
    return tuple(sample(params, value) for value in values)


def _cpu_values(found: PairReading, startup: CpuTime | None, params: dict[str, ParamValue]) -> Iterator[Value]:
    """CPU time of both ends, as cores in use and by MiB moved. Notes in `params` where it comes from."""
    reading = found.report
    used = reading.cpu
    if used is not None:
        params["cpu_from"] = "report of the program"
    elif startup and reading.active_s >= _REGION_MIN_S:
        params["cpu_from"] = "processes less start"
        params["cpu_client_process_s"] = found.client.cpu_s
        params["cpu_server_process_s"] = found.server.cpu_s
        params["cpu_client_start_s"] = startup.client_s
        params["cpu_server_start_s"] = startup.server_s
        used = CpuTime(max(0.0, found.client.cpu_s - startup.client_s), max(0.0, found.server.cpu_s - startup.server_s))
    if used is None:
        return
    for end, cpu_s in (("client", used.client_s), ("server", used.server_s)):
        yield Value(f"cpu_{end}_cores", "cores", "mean", cpu_s / reading.active_s)
        yield Value(f"cpu_{end}_us_per_mib", "us/MiB", "mean", cpu_s * 1e6 / (reading.moved_bytes / _MIB))
