"""iperf3: bandwidth of blocking TCP, one way and both ways.

``-n`` bytes instead of ``-t`` seconds, because its shortest time is a second. When the client has sent all, iperf3
ends the test, although bytes are still under way: so only what the receivers report is used.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rocelab.tools.base import CONTROL_PARAMS, Executable, Output, Reading, Request, ToolError, Value, last_words

_MBPS = 1e6


@dataclass(frozen=True)
class Iperf3:
    """`iperf3 -l SIZE -n BYTES`, with `--bidir` for both ways at once."""

    test: Literal["bandwidth", "bidirectional-bandwidth"]
    tool: str = "iperf3"
    messages_min: int = 16
    size_max_bytes: int | None = 1 << 20
    message_us: float = 1.5
    overhead_s: float = 0.05
    cpu_from: Literal["nothing"] = "nothing"
    head_start_s: float = 0.0
    server_ends: bool = True

    @property
    def executables(self) -> tuple[Executable, ...]:
        """iperf3 itself."""
        return (Executable("iperf3", package="iperf3"),)

    def server(self, request: Request) -> Sequence[str]:
        """Serves one client."""
        return ["iperf3", "--server", "--one-off", "--port", str(request.port)]

    def client(self, request: Request) -> Sequence[str]:
        """Sends `messages` writes of the size."""
        both = ["--bidir"] if self.test == "bidirectional-bandwidth" else []
        return [
            *("iperf3", "--client", request.server_address, "--port", str(request.port), "--json"),
            *("--length", str(request.size_bytes), "--bytes", str(request.messages * request.size_bytes)),
            *both,
        ]

    def read(self, request: Request, client: Output, server: Output) -> Reading:
        """The sum of what the receivers took, over the time of the test."""
        try:
            report: dict[str, Any] = json.loads(client.stdout)
        except ValueError:
            raise ToolError(f"iperf3 printed no JSON: {last_words(client)}") from None
        if "error" in report:
            raise ToolError(f"iperf3: {report['error']}")
        sums = ["sum_received"] + (["sum_received_bidir_reverse"] if self.test == "bidirectional-bandwidth" else [])
        try:
            ends = [report["end"][name] for name in sums]
            received_bytes = sum(int(end["bytes"]) for end in ends)
            active_s = max(float(end["seconds"]) for end in ends)
            retransmits = int(report["end"]["sum_sent"].get("retransmits", 0))
        except (KeyError, TypeError, ValueError) as error:
            raise ToolError(f"iperf3's report lacks {error}") from error
        if client.exit_status != 0 or server.exit_status != 0:
            raise ToolError(f"iperf3 failed: {last_words(server if server.exit_status else client)}")
        if received_bytes <= 0 or active_s <= 0 or any(int(end["bytes"]) <= 0 for end in ends):
            raise ToolError("iperf3 reports that a receiver got nothing")
        values = (
            Value("bandwidth_mbps", "Mbps", "mean", received_bytes * 8 / active_s / _MBPS),
            Value("message_rate_per_s", "1/s", "mean", received_bytes / request.size_bytes / active_s),
        )
        controls = {
            CONTROL_PARAMS[end]: str(report["end"][key])
            for end, key in (("client", "sender_tcp_congestion"), ("server", "receiver_tcp_congestion"))
            if key in report["end"]
        }
        return Reading(values, received_bytes, active_s, params={"tcp_retransmits": retransmits, **controls})
