"""What is sent when: the messages of an algorithm, each with those that have to have arrived before.

The sends of a connection (two GPUs, a channel) meet its receives in order. A step that sends ends at once, as if the
receiver had room for all; one that receives ends when its message has arrived; copies and reductions take no time.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rocelab.virtual.msccl.algorithm import Algorithm, AlgorithmError, Step, wrong

#: Sender, receiver and channel.
Connection = tuple[int, int, int]
#: By thread block, the last message that came to it, as far as a step has to know. It implies those
#: before.
_Known = Mapping[int, int]
#: Steps of a circle that are told.
_TOLD_MAX = 8


@dataclass(frozen=True, slots=True)
class Message:
    """What one step sends."""

    sender: int
    receiver: int
    channel: int
    chunks: int
    after: tuple[int, ...]
    """Messages that have to have arrived before, by their place in the list; all of them stand before it."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """All messages of an algorithm. Those of a connection stand in the order in which they are sent."""

    collective: str
    ranks: int
    chunks: int
    """Parts that the larger of a rank's input and output is divided into."""
    messages: tuple[Message, ...]

    def chunk_bytes(self, size_bytes: int) -> int:
        """Of a chunk, where the larger of input and output has so many bytes."""
        return -(-size_bytes // self.chunks)


def schedule_of(algorithm: Algorithm) -> Schedule:
    """Raises AlgorithmError for steps that would wait forever, and for sends that nothing receives."""
    nodes = _Nodes.of(algorithm)
    _join(nodes)
    messages = _messages(nodes)
    if not messages:
        raise AlgorithmError("no step of the file sends anything")
    return Schedule(algorithm.collective, len(algorithm.gpus), algorithm.chunks, tuple(messages))


@dataclass(slots=True)
class _Nodes:
    """All steps in a row: those of a thread block one after the other."""

    steps: list[Step] = field(default_factory=list)
    places: list[tuple[int, int, int]] = field(default_factory=list)
    """Of each, GPU, thread block and number in it."""
    sends: dict[Connection, list[int]] = field(default_factory=dict)
    receives: dict[Connection, list[int]] = field(default_factory=dict)
    sent_to: dict[int, Connection] = field(default_factory=dict)
    source: dict[int, int] = field(default_factory=dict)
    """Of a step that receives, the one that sends it that."""
    awaited: dict[int, int] = field(default_factory=dict)
    """Of a step that waits for another thread block, the step there."""

    @classmethod
    def of(cls, algorithm: Algorithm) -> _Nodes:
        nodes = cls()
        for gpu, blocks in enumerate(algorithm.gpus):
            firsts = []
            for at, block in enumerate(blocks):
                firsts.append(len(nodes.steps))
                nodes.steps += block.steps
                nodes.places += [(gpu, at, number) for number in range(len(block.steps))]
                mine = range(firsts[-1], len(nodes.steps))
                nodes._connect(nodes.sends, (gpu, block.send, block.channel), "sends to", mine)
                nodes._connect(nodes.receives, (block.recv, gpu, block.channel), "receives from", mine)
            for node in range(firsts[0] if firsts else 0, len(nodes.steps)):
                if (waits_for := nodes.steps[node].waits_for) is not None:
                    nodes.awaited[node] = firsts[waits_for[0]] + waits_for[1]
        return nodes

    def _connect(self, ends: dict[Connection, list[int]], key: Connection, does: str, mine: range) -> None:
        is_sending = ends is self.sends
        found = [at for at in mine if (self.steps[at].kind.sends if is_sending else self.steps[at].kind.receives)]
        if not found:
            return
        if key in ends:
            other = self.places[ends[key][0]][1]
            peer = key[1] if is_sending else key[0]
            words = f"it {does} gpu {peer} on channel {key[2]}, as tb {other} does; allowed: one thread block of a GPU"
            raise self.wrong(found[0], words)
        ends[key] = found
        if is_sending:
            self.sent_to.update(dict.fromkeys(found, key))

    def wrong(self, node: int, words: str) -> AlgorithmError:
        return wrong(self.steps[node].line, words, *self.places[node])

    def before(self, node: int) -> Iterator[int]:
        """Steps that have to have ended before one does."""
        if self.places[node][2] > 0:
            yield node - 1
        for others in (self.awaited, self.source):
            if node in others:
                yield others[node]

    def named(self, node: int) -> str:
        gpu, block, number = self.places[node]
        return f"gpu {gpu}, tb {block}, step {number} ({self.steps[node].type})"


def _join(nodes: _Nodes) -> None:
    """Finds the send of every receive."""
    for key in sorted({*nodes.sends, *nodes.receives}):
        sends, receives = nodes.sends.get(key, []), nodes.receives.get(key, [])
        for send, receive in zip(sends, receives, strict=False):
            chunks, expected = nodes.steps[send].count, nodes.steps[receive].count
            if chunks != expected:
                words = f"it receives {expected} chunks (cnt), and {nodes.named(send)} sends it {chunks}"
                raise nodes.wrong(receive, f"{words}; allowed: the same number")
            nodes.source[receive] = send
        sent = _times(len(sends), f"gpu {key[0]}", f"sends to gpu {key[1]}")
        received = _times(len(receives), f"gpu {key[1]}", f"receives from gpu {key[0]}")
        counts = f"{sent} on channel {key[2]}, and {received}"
        if len(receives) > len(sends):
            words = f"deadlock, nothing sends what it receives: {counts}; allowed: as many sends as receives"
            raise nodes.wrong(receives[len(sends)], words)
        if len(sends) > len(receives):
            words = f"nothing receives what it sends: {counts}; allowed: as many receives as sends"
            raise nodes.wrong(sends[len(receives)], words)


def _times(count: int, gpu: str, does: str) -> str:
    if count == 0:
        return f"{gpu} never {does}"
    return f"{gpu} {does} {({1: 'once', 2: 'twice'}).get(count) or f'{count} times'}"


def _messages(nodes: _Nodes) -> list[Message]:
    """Goes through the steps, each once those before it have ended."""
    waits = [0] * len(nodes.steps)
    followers: defaultdict[int, list[int]] = defaultdict(list)
    for node in range(len(nodes.steps)):
        for before in nodes.before(node):
            waits[node] += 1
            followers[before].append(node)
    ready = deque(node for node, count in enumerate(waits) if count == 0)
    course = _Course(nodes)
    ended = 0
    while ready:
        node = ready.popleft()
        ended += 1
        course.end(node)
        for follower in followers.pop(node, ()):
            waits[follower] -= 1
            if waits[follower] == 0:
                ready.append(follower)
    if ended < len(nodes.steps):
        raise _circle(nodes, waits)
    return course.messages


class _Course:
    """The messages of the steps that have ended, and what thread blocks know of them."""

    def __init__(self, nodes: _Nodes) -> None:
        self.messages: list[Message] = []
        self._nodes = nodes
        self._known: dict[tuple[int, int], _Known] = {}
        self._told: dict[int, _Known] = {}
        self._number_of: dict[int, int] = {}

    def end(self, node: int) -> None:
        """A step ends; those before it have."""
        nodes = self._nodes
        step, (gpu, block, _) = nodes.steps[node], nodes.places[node]
        knows = self._known.get((gpu, block), {})
        if node in nodes.awaited:
            knows = _both(knows, self._told[nodes.awaited[node]])
        if node in nodes.source:
            knows = {**knows, block: self._number_of[nodes.source[node]]}
        self._known[gpu, block] = knows
        if step.is_waited_for:
            self._told[node] = knows
        if node in nodes.sent_to:
            self._number_of[node] = len(self.messages)
            self.messages.append(Message(*nodes.sent_to[node], step.count, tuple(sorted(knows.values()))))


def _both(one: _Known, other: _Known) -> _Known:
    """What is known of both. Messages that come to a thread block have ascending numbers."""
    if all(one.get(block, -1) >= last for block, last in other.items()):
        return one
    return {block: max(one.get(block, -1), other.get(block, -1)) for block in {**one, **other}}


def _circle(nodes: _Nodes, waits: list[int]) -> AlgorithmError:
    """Steps that wait for each other: among those that never began, each has one before it that did not either."""
    node = next(at for at, count in enumerate(waits) if count > 0)
    seen: dict[int, int] = {}
    way: list[int] = []
    while node not in seen:
        seen[node] = len(way)
        way.append(node)
        node = next(before for before in nodes.before(node) if waits[before] > 0)
    circle = way[seen[node] :]
    told = [nodes.named(each) for each in circle[:_TOLD_MAX]]
    more = len(circle) - len(told)
    names = ", which waits for ".join([*told, f"{more} more"] if more else told)
    return nodes.wrong(
        circle[0], f"deadlock, steps wait for each other in a circle: {names}, which waits for the first"
    )
