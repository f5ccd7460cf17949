"""Which pairs of nodes are measured together: a round-robin tournament.

Its schedule is the circle method: one node keeps its place and the others move on by one. So each
has met every other once after a round fewer than there are nodes (as many as nodes, if their number
is odd).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

Pair = tuple[int, int]


def tournament(nodes: int) -> list[list[Pair]]:
    """The rounds, each with pairs that share no node. Nodes are 0 to `nodes` - 1; of a pair the smaller is first.

    With an odd number of nodes, one of them rests in each round.
    """
    places = nodes + nodes % 2
    circle = list(range(1, places))
    rounds = []
    for _ in range(places - 1):
        seats = [0, *circle]
        met = (sorted((seats[at], seats[-1 - at])) for at in range(places // 2))
        rounds.append([(one, other) for one, other in met if other < nodes])
        circle = circle[-1:] + circle[:-1]
    return rounds


def in_parts(rounds: Sequence[Sequence[Pair]], size: int | None) -> list[list[Pair]]:
    """Rounds of at most so many pairs; None: as they are."""
    if size is None:
        return [list(each) for each in rounds]
    return [list(each[at : at + size]) for each in rounds for at in range(0, len(each), size)]


def in_turns(
    rounds: Sequence[Sequence[Pair]], switch_of: Callable[[int], str | None], at_once: int | None
) -> list[list[Pair]]:
    """Rounds in which at most so many pairs leave any one switch; None: as they are.

    More would share what joins the switch to others, and be measured against each other.
    """
    if at_once is None:
        return [list(each) for each in rounds]
    made: list[list[Pair]] = []
    for pairs in rounds:
        parts: list[tuple[list[Pair], Counter[str | None]]] = []
        for pair in pairs:
            switches = {switch_of(node) for node in pair}
            left = switches if len(switches) > 1 else set()
            for part, busy in parts:
                if all(busy[switch] < at_once for switch in left):
                    part.append(pair)
                    busy.update(left)
                    break
            else:
                parts.append(([pair], Counter(left)))
        made += [part for part, _ in parts]
    return made


def both_ways(rounds: Sequence[Sequence[Pair]]) -> list[list[Pair]]:
    """Each round, and after it the same the other way round."""
    return [way for each in rounds for way in (list(each), [(other, one) for one, other in each])]
