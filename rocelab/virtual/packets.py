"""What all steps have in common that simulate packets, which one program does."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from rocelab import profiles
from rocelab.study.steps import Step
from rocelab.tools.base import Executable
from rocelab.virtual.schema import LinkTable
from rocelab.virtual.simulator import simulator
from rocelab.virtual.variants import Variant


@dataclass(frozen=True, slots=True, kw_only=True)
class PacketStep(Step):
    """One simulation of packets."""

    network: LinkTable
    host: str
    adapter: profiles.Adapter
    how: Variant
    nodes: int
    seed: int

    @property
    @override
    def tool(self) -> str:
        return simulator().name.rpartition("/")[2]

    @property
    @override
    def executables(self) -> tuple[Executable, ...]:
        return (simulator(),)
