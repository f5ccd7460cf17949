"""`[[test]]` with `test = "sharing"`: flows of several kinds at the same time on one limited link."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import Field
from typing_extensions import override

from rocelab.stats import text
from rocelab.study.tables import SizeBytes, TestOnLinks

#: Of one kind in a mix.
FLOWS_MAX: Final = 16
#: Beside one for each sender: the node that all send to, and one that asks it for the queue.
NODES_BESIDE_SENDERS: Final = 2

Mix = Annotated[Mapping[str, Annotated[int, Field(ge=1, le=FLOWS_MAX)]], Field(min_length=1)]


class SharingTable(TestOnLinks):
    """Mixes of flows, each from a node of its own to the first: ``{ soft-roce = 1, tcp = 4 }``."""

    level: Literal["network"] = "network"
    test: Literal["sharing"]
    mixes: Annotated[list[Mix], Field(min_length=1)]
    size_bytes: SizeBytes = 65536
    depth: Annotated[int, Field(ge=1, le=16384)] = 128
    measured_s: Annotated[int, Field(ge=1, le=3600)] = 3
    margin_s: Annotated[int, Field(ge=1, le=600)] = 2

    @property
    def every_test(self) -> tuple[str, ...]:
        """Each mix is a test of its own."""
        return tuple(mix_words(mix) for mix in self.mixes)

    @override
    def every_size_bytes(self) -> tuple[int, ...]:
        return (self.size_bytes,)

    @property
    @override
    def points(self) -> tuple[int, ...]:
        # A mix of another size would be another point of the same mix.
        return (0,)

    @override
    def nodes_used(self, _fabric_nodes: int) -> int:
        return max(sum(mix.values()) for mix in self.mixes) + NODES_BESIDE_SENDERS


def mix_words(mix: Mapping[str, int]) -> str:
    """A mix for people: ``1 soft-roce and 4 tcp``, whatever order its file has."""
    return text.listing([f"{count} {name}" for name, count in sorted(mix.items())])
