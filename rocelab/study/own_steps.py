"""Steps of programs of one's own that are no MPI jobs: a server and a client, or one program on each node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from typing_extensions import override

from rocelab.results import StepKey
from rocelab.study.steps import SingleStep
from rocelab.tools.base import Executable
from rocelab.tools.own import OwnProgram

#: About how long a program takes, for planning only.
_EXPECTED_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnStep(SingleStep):
    """One run of a program of one's own."""

    program: OwnProgram
    run: Literal["pair", "nodes"]
    """`pair`: the client on the first node, the server on the second. `nodes`: the same command on each node."""
    nodes: int
    env: Mapping[str, str]
    device: Executable | None
    """urxe, if it is what gives the program its device."""
    ready_text: str | None
    """What the server prints once it can be asked; None: its port is open then."""

    @property
    @override
    def key(self) -> StepKey:
        return StepKey(
            link=self.link.id,
            interconnect=self.interconnect,
            level="program",
            test=self.program.test,
            variant=self.variant,
            size_bytes=None,
            repetition=self.repetition,
            nodes=self.nodes,
            ranks=self.nodes,
        )

    @property
    @override
    def test_name(self) -> str:
        return self.program.test

    @property
    @override
    def tool(self) -> str:
        return self.program.name

    @property
    @override
    def executables(self) -> tuple[Executable, ...]:
        return (*self.program.executables_for({}), *((self.device,) if self.device else ()))

    @property
    @override
    def built_by(self) -> tuple[str, tuple[str, ...]] | None:
        return self.program.built_by({})

    @property
    @override
    def expected_s(self) -> float:
        return _EXPECTED_S

    @property
    @override
    def place(self) -> tuple[object, ...]:
        return ("program", self.test_name, self.nodes)

    @property
    @override
    def compared(self) -> tuple[tuple[str, str], ...]:
        return (self.program.main_metric,)

    @property
    @override
    def series(self) -> tuple[str, ...]:
        return (self.link.id, "program", self.test_name, self.interconnect, self.variant, f"{self.nodes}-nodes")
