"""Latency under load: a method while a stream of another fills the link, from the client's node to the server's.

Both streams of a side are of the same interconnect and share its processor, so both wait in the kernel: two programs
that poll would measure each other's time slices. The stream has no end of its own and is ended with the measurement;
one that ended before is an error, for then the link was idle.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from rocelab.tools.base import Executable, Method, Output, Reading, Request

#: Far from the ports that steps are given.
_PORT_OFFSET: Final = 4000
_LOAD_BYTES: Final = 1 << 20
#: More than a step has time for: a terabyte.
_LOAD_MESSAGES: Final = 1_000_000
#: The stream's server listens by then, also on a busy machine, and afterwards its stream has filled
#: the link's queue. As much later than the client its server ends the stream: the end that ends it
#: first decides that there was one until then.
_PAUSE_S: Final = 0.5

#: The measured program's exit status is that of the whole.
_SCRIPT: Final = """
{load} </dev/null >/dev/null 2>&1 &
load=$!
sleep {pause_s}
{measured}
status=$?
{end}
wait $load 2>/dev/null
exit $status
"""
_KILL: Final = "kill $load 2>/dev/null"
_SERVER_END: Final = f"sleep {_PAUSE_S}; {_KILL}"
_CLIENT_END: Final = (
    f'{_KILL} || [ $status != 0 ] || {{ echo "the stream that was to load the link had ended" >&2; exit 1; }}'
)


@dataclass(frozen=True)
class Loaded:
    """`method`, which measures latency, while `load`, which measures bandwidth, goes on."""

    method: Method
    load: Method
    message_us: float = 1500.0
    """A queue of some milliseconds is what is to be found out about."""
    cpu_from: Literal["nothing"] = "nothing"
    head_start_s: float = 0.0

    @property
    def tool(self) -> str:
        """The measured program."""
        return self.method.tool

    @property
    def executables(self) -> tuple[Executable, ...]:
        """Those of both."""
        return tuple(dict.fromkeys((*self.method.executables, *self.load.executables)))

    @property
    def messages_min(self) -> int:
        """That of the measured program."""
        return self.method.messages_min

    @property
    def size_max_bytes(self) -> int | None:
        """That of the measured program."""
        return self.method.size_max_bytes

    @property
    def overhead_s(self) -> float:
        """The stream's server goes first, and then the stream."""
        return self.method.overhead_s + self.load.overhead_s + 3 * _PAUSE_S

    @property
    def server_ends(self) -> bool:
        """As the measured program's server does."""
        return self.method.server_ends

    def server(self, request: Request) -> Sequence[str]:
        """Both servers; the one that is waited for listens last."""
        return _both(self.load.server(_stream(request)), self.method.server(request), _SERVER_END)

    def client(self, request: Request) -> Sequence[str]:
        """The stream, and then the measured program."""
        return _both(self.load.client(_stream(request)), self.method.client(request), _CLIENT_END)

    def read(self, request: Request, client: Output, server: Output) -> Reading:
        """What the measured program says."""
        return self.method.read(request, client, server)


def _stream(request: Request) -> Request:
    port = request.port + _PORT_OFFSET
    return dataclasses.replace(request, size_bytes=_LOAD_BYTES, messages=_LOAD_MESSAGES, port=port)


def _both(load: Sequence[str], measured: Sequence[str], end: str) -> list[str]:
    script = _SCRIPT.format(load=shlex.join(load), measured=shlex.join(measured), end=end, pause_s=_PAUSE_S)
    return ["sh", "-c", script.strip()]
