"""Another program beside the measured one, at both ends, on the same core, for as long as that runs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from rocelab.tools.base import Executable, Method, Output, Reading, Request

#: The measured program's exit status is that of the whole.
_SCRIPT: Final = """
{other} </dev/null >/dev/null 2>&1 &
other=$!
{before}
{measured}
status=$?
{end}
wait $other 2>/dev/null
exit $status
"""
#: Ends the other program; a line of a script.
KILL: Final = "kill $other 2>/dev/null"


def beside(other: str, measured: Sequence[str], *, before: str = ":", end: str = KILL) -> list[str]:
    """The command line of an end: `other`, a command of the shell, goes on while the measured program runs.

    `before` comes between their starts, `end` after the measured program, whose exit status is then `$status`.
    """
    script = _SCRIPT.format(other=other, before=before, measured=shlex.join(measured), end=end)
    return ["sh", "-c", script.strip()]


@dataclass(frozen=True)
class Wrapped:
    """A method whose programs are not alone; what it says of itself is what the measured one says."""

    method: Method
    cpu_from: Literal["nothing"] = "nothing"
    """The other program's would be in it."""
    head_start_s: float = 0.0

    @property
    def tool(self) -> str:
        """The measured program."""
        return self.method.tool

    @property
    def executables(self) -> tuple[Executable, ...]:
        """Those of the measured program."""
        return self.method.executables

    @property
    def messages_min(self) -> int:
        """That of the measured program."""
        return self.method.messages_min

    @property
    def size_max_bytes(self) -> int | None:
        """That of the measured program."""
        return self.method.size_max_bytes

    @property
    def message_us(self) -> float:
        """That of the measured program."""
        return self.method.message_us

    @property
    def overhead_s(self) -> float:
        """That of the measured program."""
        return self.method.overhead_s

    @property
    def server_ends(self) -> bool:
        """As the measured program's server does."""
        return self.method.server_ends

    def read(self, request: Request, client: Output, server: Output) -> Reading:
        """What the measured program says."""
        return self.method.read(request, client, server)


@dataclass(frozen=True)
class Busy(Wrapped):
    """`method` while each end's core has a process of the same priority that computes and never sleeps."""

    @property
    def overhead_s(self) -> float:
        """Each end has half of its core."""
        return 2 * self.method.overhead_s + self.method.head_start_s

    @property
    def message_us(self) -> float:
        """Likewise."""
        return 2 * self.method.message_us

    def server(self, request: Request) -> Sequence[str]:
        """The server and the other process."""
        return beside(_COMPUTE, self.method.server(request))

    def client(self, request: Request) -> Sequence[str]:
        """The client and the other process."""
        return beside(_COMPUTE, self.method.client(request))


_COMPUTE: Final = "while :; do :; done"
