"""qperf: TCP latency by an existing tool, to check our own against (its mean; it prints no other statistic).

A run takes a whole second at least: version 0.4.11 of Debian 12 hangs with ``--no_msgs`` and with parts of a second
as ``--time``. So it measures a few sizes, not all.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from rocelab.tools.base import Executable, Output, Reading, Request, ToolError, Value, describe_exit, last_words

RUN_S: Final = 1
_LATENCY = re.compile(r"^\s*latency\s*=\s*([0-9.]+)\s*ns\s*$", re.MULTILINE)


@dataclass(frozen=True)
class QperfLatency:
    """`qperf tcp_lat`: half of a round trip, averaged over a second; both ends block in the kernel."""

    tool: str = "qperf"
    messages_min: int = 1
    size_max_bytes: int | None = None
    message_us: float = 1e6 * RUN_S
    overhead_s: float = 0.05
    cpu_from: Literal["nothing"] = "nothing"
    head_start_s: float = 0.0
    server_ends: bool = False

    @property
    def executables(self) -> tuple[Executable, ...]:
        """The program and server in one."""
        return (Executable("qperf", package="qperf"),)

    def server(self, request: Request) -> Sequence[str]:
        """Serves until it is stopped."""
        return ["qperf", "--listen_port", str(request.port)]

    def client(self, request: Request) -> Sequence[str]:
        """Runs for a second, whatever the number of messages."""
        return [
            *("qperf", request.server_address, "--listen_port", str(request.port), "--unify_units"),
            *("--time", str(RUN_S), "--msg_size", str(request.size_bytes), "tcp_lat"),
        ]

    def read(self, request: Request, client: Output, server: Output) -> Reading:  # noqa: ARG002 -- the protocol's
        """The mean latency. The server is stopped from outside, so its exit status says nothing."""
        if client.exit_status != 0:
            raise ToolError(f"the client {describe_exit(client.exit_status)}: {last_words(client)}")
        found = _LATENCY.search(client.stdout)
        if found is None:
            raise ToolError(f"qperf printed no latency: {last_words(client)}")
        latency_us = float(found[1]) / 1000
        if latency_us <= 0:
            raise ToolError("qperf reports a latency of 0")
        messages = int(RUN_S * 1e6 / (2 * latency_us))
        value = Value("latency_us", "us", "mean", latency_us)
        return Reading((value,), 2 * messages * request.size_bytes, float(RUN_S))
