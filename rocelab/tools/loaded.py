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
from typing import Final

from rocelab.tools.base import Executable, Method, Request
from rocelab.tools.beside import KILL, Wrapped, beside

#: Far from the ports that steps are given.
_PORT_OFFSET: Final = 4000
_LOAD_BYTES: Final = 1 << 20
#: More than a step has time for: a terabyte.
_LOAD_MESSAGES: Final = 1_000_000
#: The stream's server listens by then, also on a busy machine, and afterwards its stream has filled
#: the link's queue. As much later than the client its server ends the stream: the end that ends it
#: first decides that there was one until then.
_PAUSE_S: Final = 0.5

_SERVER_END: Final = f"sleep {_PAUSE_S}; {KILL}"
_CLIENT_END: Final = (
    f'{KILL} || [ $status != 0 ] || {{ echo "the stream that was to load the link had ended" >&2; exit 1; }}'
)


@dataclass(frozen=True, kw_only=True)
class Loaded(Wrapped):
    """`method`, which measures latency, while `load`, which measures bandwidth, goes on."""

    load: Method

    @property
    def executables(self) -> tuple[Executable, ...]:
        """Those of both."""
        return tuple(dict.fromkeys((*self.method.executables, *self.load.executables)))

    @property
    def message_us(self) -> float:
        """A queue of some milliseconds is what is to be found out about."""
        return 1500.0

    @property
    def overhead_s(self) -> float:
        """The stream's server goes first, and then the stream."""
        return self.method.overhead_s + self.load.overhead_s + 3 * _PAUSE_S

    def server(self, request: Request) -> Sequence[str]:
        """Both servers; the one that is waited for listens last."""
        return _with_stream(self.load.server(_stream(request)), self.method.server(request), _SERVER_END)

    def client(self, request: Request) -> Sequence[str]:
        """The stream, and then the measured program."""
        return _with_stream(self.load.client(_stream(request)), self.method.client(request), _CLIENT_END)


def _stream(request: Request) -> Request:
    port = request.port + _PORT_OFFSET
    return dataclasses.replace(request, size_bytes=_LOAD_BYTES, messages=_LOAD_MESSAGES, port=port)


def _with_stream(load: Sequence[str], measured: Sequence[str], end: str) -> list[str]:
    return beside(shlex.join(load), measured, before=f"sleep {_PAUSE_S}", end=end)
