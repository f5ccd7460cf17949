"""Carries out one step: server, wait until it listens, client, time limit, and what both ends left behind."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rocelab.fabric.base import Fabric, Finished, Launcher, LaunchError, Node, Running
from rocelab.study.plan import Step
from rocelab.tools.base import Output, Reading, Request, ToolError, last_words

#: How long a server may take to listen. It only has to start; a client cannot come earlier.
_LISTEN_LIMIT_S = 10.0
#: How long a server may take to end after its client has ended.
_SERVER_END_LIMIT_S = 3.0
_PORT_FIRST = 18000
_PORTS = 1000


@dataclass(frozen=True, slots=True)
class Execution:
    """How a step went: a reading, or the error why there is none."""

    reading: Reading | None
    error: str | None
    hung: bool
    """It had to be stopped at its time limit."""
    client: Finished | None
    server: Finished | None
    command: str
    started_at: str
    duration_s: float


class Executor:
    """Runs steps on the first two nodes of a fabric: the client on the first, the server on the second."""

    def __init__(self, fabric: Fabric, launcher: Launcher) -> None:
        self._client_node, self._server_node = fabric.nodes[0], fabric.nodes[1]
        self._launcher = launcher
        self._count = 0
        self._cores = sorted(os.sched_getaffinity(0))

    def execute(self, step: Step, log: Path | None) -> Execution:
        """Run a step to its end. Both ends are gone afterwards, also when this is interrupted."""
        request = self._request(step)
        command = step.method.client(request)
        started_at, started_s = now(), time.monotonic()
        server: Running | None = None
        client: Running | None = None
        reading, error = None, None
        try:
            server = self._start(self._server_node, step.method.server(request), log)
            self._launcher.wait_until_listening(
                self._server_node, server, request.port, timeout_s=min(_LISTEN_LIMIT_S, step.time_limit_s)
            )
            client = self._start(self._client_node, command, log)
            client.wait(step.time_limit_s)
        except LaunchError as failure:
            error = str(failure)
        finally:
            client_end = client.stop() if client is not None else None
            server_end = self._end_server(step, server, client_end)
        if error is None:
            reading, error = _judge(step, request, client_end, server_end)
        return Execution(
            reading=reading,
            error=error,
            hung=any(end is not None and end.timed_out for end in (client_end, server_end)),
            client=client_end,
            server=server_end,
            command=shlex.join(command),
            started_at=started_at,
            duration_s=time.monotonic() - started_s,
        )

    def _request(self, step: Step) -> Request:
        # Ports change from step to step, so that a server that is slow to go is not in the way of the next.
        port = _PORT_FIRST + self._count % _PORTS
        self._count += 1
        return Request(
            size_bytes=step.size_bytes,
            messages=step.messages,
            server_address=self._server_node.addresses[step.link.id],
            client_interface=self._client_node.interfaces[step.link.id],
            server_interface=self._server_node.interfaces[step.link.id],
            port=port,
        )

    def _start(self, node: Node, argv: Sequence[str], log: Path | None) -> Running:
        core = self._cores[node.index % len(self._cores)]
        return self._launcher.start(node, argv, cpu=core, log=log)

    @staticmethod
    def _end_server(step: Step, server: Running | None, client: Finished | None) -> Finished | None:
        if server is None:
            return None
        if client is None or not step.method.server_ends or client.timed_out or client.exit_status != 0:
            return server.poll() or server.stop()
        return server.wait(_SERVER_END_LIMIT_S)


def _judge(
    step: Step, request: Request, client: Finished | None, server: Finished | None
) -> tuple[Reading | None, str | None]:
    assert client is not None
    assert server is not None
    for end, finished in (("client", client), ("server", server)):
        # A program that the runner had to stop says nothing worth more than the reason.
        if finished.timed_out:
            return None, f"the {end} hung and was stopped ({finished.stopped_because}): {last_words(_output(finished))}"
    try:
        reading = step.method.read(request, _output(client), _output(server))
    except ToolError as error:
        return None, str(error)
    return reading, None


def _output(finished: Finished) -> Output:
    # A server that was stopped on purpose has done nothing wrong.
    stopped = finished.stopped_because is not None and not finished.timed_out
    return Output(finished.stdout, finished.stderr, 0 if stopped else finished.exit_status)


def now() -> str:
    """The time as samples state it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
