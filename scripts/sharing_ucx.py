"""ucx_perftest with threads: the one program here that uses verbs from many threads of a process."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rocelab.tools.base import Output, Reading, Request, ToolError, Value, check_exit, last_words
from rocelab.tools.interconnects import urxe

# Iterations, overhead, bandwidth, rate of messages; one thread has the average of the last three,
# too, and the median.
_FINAL = re.compile(r"^Final:\s+(?P<numbers>[\d.\s]+)$", re.MULTILINE)
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class UcxThreads:
    """Messages with tags on as many workers as there are threads, each with its own connection."""

    threads: int
    over: str
    """``soft-roce`` or ``tcp``."""
    tool: str = "ucx_perftest"

    def server(self, request: Request) -> Sequence[str]:
        """Serves one client."""
        return self._command(request, request.server_interface)

    def client(self, request: Request) -> Sequence[str]:
        """The same options, the server's address and what is to be sent."""
        each = max(1, request.messages // self.threads)
        test = ["-t", "tag_bw", "-s", str(request.size_bytes), "-n", str(each), "-w", "10"]
        return [*self._command(request, request.client_interface), request.server_address, *test]

    def _command(self, request: Request, interface: str) -> list[str]:
        if self.over == "tcp":
            transports, device, runner = "tcp", interface, []
        else:
            # UCX sets connections of rc_verbs up over ud_verbs.
            transports, device, runner = "rc_verbs,ud_verbs", f"urxe_{interface}:1", [urxe().name, "run", "--"]
        settings = [f"UCX_TLS={transports}", f"UCX_NET_DEVICES={device}"]
        return ["env", *settings, *runner, self.tool, "-T", str(self.threads), "-p", str(request.port)]

    def read(self, request: Request, client: Output, server: Output) -> Reading:
        """The bandwidth of all threads."""
        check_exit(client, server)
        final = _FINAL.search(client.stdout)
        numbers = final["numbers"].split() if final else []
        if len(numbers) < 4:
            raise ToolError(f"ucx_perftest printed no final line: {last_words(client)}")
        bytes_per_s = float(numbers[-3 if len(numbers) > 4 else -2]) * _MIB
        moved_bytes = request.size_bytes * int(numbers[0])
        value = Value("bandwidth_mbps", "Mbps", "mean", bytes_per_s * 8 / 1e6)
        return Reading((value,), moved_bytes, moved_bytes / bytes_per_s)
