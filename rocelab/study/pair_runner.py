"""Runs a program pair on two nodes: server, wait until it listens, client, time limit, what both ends leave."""

from __future__ import annotations

import contextlib
import shlex
import signal
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rocelab import peers
from rocelab.fabric.base import Finished, Launcher, LaunchError, Node, Running
from rocelab.study.execution import Execution, now
from rocelab.study.steps import PairStep
from rocelab.tools.base import CONTROL_PARAMS, DisturbedError, Output, Reading, Request, ToolError, last_words

#: How long a server may take to listen. It only has to start; a client cannot come earlier.
_LISTEN_LIMIT_S = 10.0
#: How long a server may take to end after its client has ended.
_SERVER_END_LIMIT_S = 3.0
#: From starting a client to its sleep; a few milliseconds on an idle machine.
_SETTLE_S = 0.02

#: The cores that a program on a node is pinned to, for a link; none: any.
Cores = Callable[[Node, str], Collection[int]]


@dataclass(frozen=True, slots=True)
class PairReading:
    """What both ends said, and what they cost."""

    report: Reading
    client: Finished
    server: Finished

    def pace(self, step: PairStep) -> float:
        """How many times as long as planned a message took."""
        return self.report.active_s / (step.messages * step.message_s)


@dataclass
class _Pair:
    """The two ends of a step, as far as they were started."""

    request: Request
    command: tuple[str, ...]
    log: Path | None
    server: Running | None = None
    client: Running | None = None
    held: bool = False
    """Both ends are stopped (SIGSTOP)."""
    client_end: Finished | None = None
    server_end: Finished | None = None
    error: str | None = None
    hung: bool = False


class PairRunner:
    """Runs steps between two nodes, one at a time."""

    def __init__(self, client_node: Node, server_node: Node, launcher: Launcher, cores: Cores) -> None:
        self._client_node, self._server_node = client_node, server_node
        self._launcher = launcher
        self._cores = cores
        self._waiting: dict[PairStep, _Pair] = {}
        self._current: _Pair | None = None
        self._is_abandoned = False

    @property
    def is_waiting(self) -> bool:
        """A step is prepared and not yet carried out."""
        return bool(self._waiting)

    def prepare(self, step: PairStep, log: Path | None) -> None:
        """Start a step that sleeps first, while others are measured."""
        # Both ends are held: the client cannot begin before `execute` lets it, and a server that
        # polls for it (perftest's with RDMA-CM) takes no processor from what is measured meanwhile.
        # Their sleep runs out all the same. This returns when both have settled, so that their
        # start does not disturb that either.
        pair = self._pair(step, log)
        self._waiting[step] = pair
        self._guarded(pair, partial(self._hold, step, pair))

    def execute(self, step: PairStep, log: Path | None) -> Execution[PairReading]:
        """Run a step to its end. Both ends are gone afterwards, also when this is interrupted."""
        started_at, started_s = now(), time.monotonic()
        self._current = pair = self._waiting.pop(step, None) or self._pair(step, log)
        try:
            self._guarded(pair, partial(self._carry_out, step, pair))
            self._guarded(pair, partial(self._await_ends, step, pair))
        finally:
            # Nothing is left to end after a good step.
            self._discard(pair)
            self._current = None
        reading, error, disturbed = None, pair.error, False
        if error is None:
            try:
                reading = _judge(step, pair)
            except ToolError as failure:
                error, disturbed = str(failure), isinstance(failure, DisturbedError)
        return Execution(
            reading=reading,
            error=error,
            hung=pair.hung or any(end is not None and end.timed_out for end in (pair.client_end, pair.server_end)),
            disturbed=disturbed,
            command=shlex.join(pair.command),
            started_at=started_at,
            duration_s=time.monotonic() - started_s,
        )

    def abandon(self) -> None:
        """Kill the programs of a step that another thread carries out, and let it start no more."""
        self._is_abandoned = True
        pair = self._current
        for running in () if pair is None else (pair.client, pair.server):
            if running is not None:
                running.signal(signal.SIGKILL)

    def withdraw(self) -> None:
        """End what was prepared and not carried out."""
        for pair in self._waiting.values():
            self._discard(pair)
        self._waiting.clear()

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
        pair.held = True
        for end in (pair.client, pair.server):
            assert end is not None
            end.signal(signal.SIGSTOP)

    def _release(self, pair: _Pair) -> None:
        if pair.held:
            pair.held = False
            for end in (pair.server, pair.client):
                assert end is not None
                end.signal(signal.SIGCONT)

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
        if self._is_abandoned:
            raise LaunchError(f"{node.name}: {argv[0]} was not started: the run was interrupted")
        return self._launcher.start(node, argv, cores=self._cores(node, link), log=log)


def _goes_on(program: Running) -> bool:
    try:
        return program.poll() is None
    except LaunchError:
        return False  # It is lost, with its node.


def _judge(step: PairStep, pair: _Pair) -> PairReading:
    client, server = pair.client_end, pair.server_end
    assert client is not None
    assert server is not None
    for end, finished in (("client", client), ("server", server)):
        # A program that had to be stopped says nothing worth more than the reason.
        if finished.timed_out:
            words = last_words(_output(finished))
            raise ToolError(f"the {end} hung and was stopped ({finished.stopped_because}): {words}")
    reading = step.method.read(pair.request, _output(client), _output(server))
    _check_control(step, reading)
    return PairReading(reading, client, server)


def _check_control(step: PairStep, reading: Reading) -> None:
    """Refuses a connection that had another congestion control than its step, where the program tells."""
    wanted = peers.control_of(step.variant)
    if wanted in (None, peers.DEFAULT):
        return
    for end, param in CONTROL_PARAMS.items():
        found = reading.params.get(param, wanted)
        if found != wanted:
            raise ToolError(f"the {end}'s connection had the congestion control {found}, not {wanted}")


def _output(finished: Finished) -> Output:
    # A server that was stopped on purpose has done nothing wrong.
    stopped = finished.stopped_because is not None and not finished.timed_out
    return Output(finished.stdout, finished.stderr, 0 if stopped else finished.exit_status)
