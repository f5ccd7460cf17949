"""rocelab-sock, our own socket benchmark: what no existing tool does (docs/tools.md says which cases these are)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rocelab.tools.base import (
    CONTROL_PARAMS,
    CpuTime,
    Executable,
    Output,
    Reading,
    Request,
    Test,
    ToolError,
    Value,
    check_exit,
    own_program,
)

_NAMES = {
    "latency": "latency",
    "bandwidth": "bandwidth",
    "bidirectional-bandwidth": "bidirectional",
    "cpu-use": "bandwidth",
}
_STATISTICS = {"p50": "median", "mean": "mean", "p99": "p99", "min": "min"}
#: Part of the timed messages that go before them, so that caches, windows and clocks have settled.
_WARMUP_PART = 10


def program() -> Executable:
    """Where rocelab-sock is."""
    return own_program("rocelab-sock")


@dataclass(frozen=True)
class Sock:
    """Plain TCP or UDP sockets: asleep in the kernel, asking again and again, or asking for 100 us and then asleep."""

    test: Test
    waiting: Literal["blocking", "busy-poll", "spin"]
    protocol: Literal["tcp", "udp"] = "tcp"
    no_delay: bool = False
    """Of a stream: no message waits to be joined with the next (TCP_NODELAY)."""
    zero_copy: bool = False
    """Of a stream: the kernel borrows the pages of messages instead of copying them."""
    kernel_poll: Literal["none", "poll", "prefer"] = "none"
    """Whether a call that finds nothing has the kernel poll the interface, and in place of its interrupts."""
    tool: str = "rocelab-sock"
    messages_min: int = 5
    size_max_bytes: int | None = None
    message_us: float = 3.0
    overhead_s: float = 0.02
    cpu_from: Literal["report"] = "report"
    head_start_s: float = 0.0
    server_ends: bool = True

    @property
    def executables(self) -> tuple[Executable, ...]:
        """rocelab-sock itself."""
        return (program(),)

    def server(self, request: Request) -> Sequence[str]:
        """Serves one client."""
        return [program().name, "server", "--port", str(request.port)]

    def client(self, request: Request) -> Sequence[str]:
        """Brings the whole job, also the server's part."""
        return [
            *(program().name, "client", request.server_address, "--port", str(request.port)),
            *("--protocol", self.protocol, "--test", _NAMES[self.test], "--waiting", self.waiting),
            *("--size", str(request.size_bytes), "--messages", str(request.messages)),
            *("--warmup", str(max(1, request.messages // _WARMUP_PART))),
            *(("--no-delay",) if self.no_delay else ()),
            *(("--zero-copy",) if self.zero_copy else ()),
            *(("--kernel-poll", self.kernel_poll) if self.kernel_poll != "none" else ()),
        ]

    def read(self, request: Request, client: Output, server: Output) -> Reading:
        """Its JSON. It has compared the content of messages itself and fails if any was wrong."""
        check_exit(client, server)
        try:
            report: dict[str, Any] = json.loads(client.stdout)
            messages = int(report["messages"])
            if int(report["size_bytes"]) != request.size_bytes or messages != request.messages:
                raise ToolError("rocelab-sock reports another size or number of messages than it was asked for")
            active_s = float(report["client"]["elapsed_s"])
            cpu = CpuTime(float(report["client"]["cpu_s"]), float(report["server"]["cpu_s"]))
            values = self._values(report)
        except (ValueError, KeyError, TypeError) as error:
            raise ToolError(f"rocelab-sock printed something else than its report: {error!r}") from error
        ways = 1 if _NAMES[self.test] == "bandwidth" else 2
        params: dict[str, str | int | bool] = {"lost_messages": int(report.get("lost_messages", 0))}
        for end, param in CONTROL_PARAMS.items():
            if (control := report[end].get("congestion_control")) is not None:
                params[param] = str(control)
            params |= self._polls(end, report[end])
        return Reading(values, request.size_bytes * messages * ways, active_s, cpu, params)

    def _polls(self, end: str, said: Mapping[str, Any]) -> dict[str, str | int | bool]:
        """What the kernel polls for the connection of an end. ToolError where that is not what was asked for."""
        if self.protocol == "udp":
            return {}
        found = bool(said.get("busy_poll_us")), bool(said.get("prefer_busy_poll"))
        wanted = self.kernel_poll != "none", self.kernel_poll == "prefer"
        if wanted[0] and found != wanted:
            raise ToolError(f"the {end}'s connection has SO_BUSY_POLL, SO_PREFER_BUSY_POLL {found}, not {wanted}")
        has_napi = said.get("napi_id") is not None
        if wanted[0] and not has_napi:
            raise ToolError(f"the {end}'s packets did not come by NAPI: the kernel had nothing to poll")
        return {
            f"busy_poll_us_{end}": int(said.get("busy_poll_us", 0)),
            f"prefer_busy_poll_{end}": found[1],
            f"napi_{end}": has_napi,
        }

    def _values(self, report: dict[str, Any]) -> tuple[Value, ...]:
        if self.test == "latency":
            latency = report["latency_us"]
            return tuple(Value("latency_us", "us", name, float(latency[key])) for key, name in _STATISTICS.items())
        return (
            Value("bandwidth_mbps", "Mbps", "mean", float(report["bandwidth_mbps"])),
            Value("message_rate_per_s", "1/s", "mean", float(report["message_rate_per_s"])),
        )
