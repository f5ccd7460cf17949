"""Which nodes send to which when many send at the same time."""

from __future__ import annotations

from typing import Final, Literal

FlowTest = Literal["mesh", "incast", "bisection"]
#: The tests of the network level in which many nodes send at once.
FLOW_TESTS: Final[tuple[FlowTest, ...]] = ("mesh", "incast", "bisection")

#: Sender and receiver, by their index.
Flow = tuple[int, int]


def flows(test: FlowTest, nodes: int) -> list[list[Flow]]:
    """All flows, in batches in which no node sends twice.

    ``mesh`` is from each node to every other; ``incast`` from every other to the first.
    ``bisection`` is between each node of the first half and one of the second, both ways, so all of
    it crosses what joins the halves.
    """
    if test == "incast":
        return [[(sender, 0) for sender in range(1, nodes)]]
    if test == "bisection":
        half = nodes // 2
        return [[(one, (one + half) % (2 * half)) for one in range(2 * half)]]
    return [[(sender, (sender + distance) % nodes) for sender in range(nodes)] for distance in range(1, nodes)]
