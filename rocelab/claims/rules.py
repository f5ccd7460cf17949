"""The rules by which claims are judged, as they stand in ``data/*.toml``."""

from __future__ import annotations

import math
from typing import Annotated, Any, Final, Literal

import pydantic

APART_PERCENT: Final = 6.0
"""From so much on a network is ahead of another, which two measurements of one network are not.

Medians of ib_send_lat in five runs of one set-up, whose options of a path MTU had no effect, are up to 5.9 % apart
(``profiles/validation/potter-2018.toml``); that is rounded up. Charts of a source without a spread have no more to it.
"""


class Data(pydantic.BaseModel):
    """An entry of a data file: unknown keys are errors."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)


class Side(Data):
    """One of the two things a claim compares.

    A file may say `variant` in place of a list of one. A variant without a congestion control is meant under any that a
    run has. Of several series, a reference is the best at each size, in `parts` and `answers` among the congestion
    controls of the variant measured first; all other sides are the one measured first.
    """

    name: str
    interconnect: str
    variants: tuple[str, ...] = pydantic.Field(min_length=1)

    @pydantic.model_validator(mode="before")
    @classmethod
    def _one_variant(cls, data: Any) -> Any:
        if not isinstance(data, dict) or "variant" not in data:
            return data
        if "variants" in data:
            raise ValueError("a side has 'variant' or 'variants', and not both: name all of them in 'variants'")
        return {name: each for name, each in data.items() if name != "variant"} | {"variants": (data["variant"],)}


class SizeRange(Data):
    """Message sizes from one to another, both included."""

    from_bytes: int = pydantic.Field(ge=1)
    to_bytes: int = pydantic.Field(ge=1)


class Expectation(SizeRange):
    """Which side the claim says is better in a range of sizes."""

    better: Literal["subject", "reference"]
    margin: float = pydantic.Field(default=0.0, ge=0)
    """By how much the medians must differ at least, in the unit of the metric."""


class Comparison(Data):
    """What the rules that compare two series have in common."""

    level: str = "network"
    test: str
    metric: str
    better: Literal["lower", "higher"]
    links: tuple[str, ...]
    """Link profiles on which it can be judged; the first that the run has is taken. Empty: any link."""
    subject: Side
    reference: Side
    also: Side | None = None
    """A second reference: reported beside the verdict, never part of it."""


class Similar(Comparison):
    """Both sides are the same up to a tolerance, in a range of sizes."""

    kind: Literal["similar"]
    sizes: SizeRange
    tolerance: float = pydantic.Field(gt=0, lt=1)


class Ordered(Comparison):
    """Each side is the better one where the claim says so."""

    kind: Literal["ordered"]
    expect: tuple[Expectation, ...] = pydantic.Field(min_length=1)


class Fails(Data):
    """Runs of these tests fail or hang, and not only once in a while."""

    kind: Literal["fails"]
    at_least: float = pydantic.Field(gt=0, le=1)
    """Share of the runs of a test that must fail to bear the claim out."""
    interconnect: str
    name: str
    level: str = "network"
    tests: tuple[str, ...]


class LinkSide(Side):
    """A series on a link of its own."""

    link: str


class ShapeRule(Data):
    """What the rules about the shape of single series have in common."""

    level: str = "network"
    test: str
    metric: str


class Steady(ShapeRule):
    """The bandwidth of a ping-pong never falls again as messages grow."""

    kind: Literal["steady"]
    sides: tuple[LinkSide, ...] = pydantic.Field(min_length=1)
    sizes: SizeRange
    tolerance: float = pydantic.Field(gt=0, lt=1)
    """Part by which it may fall below its best at smaller sizes."""
    level_from_bytes: int | None = pydantic.Field(default=None, ge=1)
    """From this size on it stays what it is there, up and down, by the same part."""


class Degrades(ShapeRule):
    """Beyond a size, the bandwidth of a ping-pong is a part of what another link gives, and below it is not."""

    kind: Literal["degrades"]
    subject: LinkSide
    reference: LinkSide
    above_bytes: int = pydantic.Field(ge=1)
    to_bytes: int = pydantic.Field(ge=1)
    at_most: float = pydantic.Field(gt=0, lt=1)
    """Part of the reference's bandwidth that is left at larger sizes, at most."""


class Reaches(ShapeRule):
    """Every node of a mesh sends at a part of the rate of its cable, in meshes up to a number of nodes."""

    kind: Literal["reaches"]
    side: LinkSide
    at_least: float = pydantic.Field(gt=0, lt=1)
    to_nodes: int = pydantic.Field(ge=2)


class Linear(ShapeRule):
    """What a mesh moves in total grows with the number of its nodes."""

    kind: Literal["linear"]
    side: LinkSide
    at_least: float = pydantic.Field(gt=0, lt=1)
    """Part of (nodes times the throughput of one) that is reached, at every number of nodes."""
    to_nodes: int = pydantic.Field(ge=3)
    """The largest number of nodes, which has to be there."""
    bottleneck: LinkSide | None = None
    """The same where the switches carry less than the nodes send: it has to fall behind at the most nodes."""


class Part(Data):
    """A number of a claim: computed from a series or two, over sizes or numbers of nodes, and held against a range."""

    name: str
    level: str = "network"
    test: str
    metric: str
    better: Literal["lower", "higher"] = "higher"
    subject: LinkSide
    reference: LinkSide | None = None
    how: Literal["value", "ratio", "reduction", "increase", "difference", "each", "growth", "kink", "linearity"]
    """`ratio`: how many times as good the subject is as the reference. `reduction`: by how many percent of the
    reference the subject is less. `increase`: by how many it is more. `each`: the value over the number of nodes.
    `growth`: how many times the value is that at the size before. `kink`: how many times the growth to a size is that
    of the sizes before and after (their geometric mean), or the other way round: 1 where a curve goes on as before.
    `linearity`: what a mesh moves over its number of nodes times what one moves in the smallest."""
    of: Literal["most", "least", "largest"]
    """The largest or smallest number of all sizes, or that of the largest size."""
    best_of_repetitions: bool = False
    """Whether a point is its best repetition, not the median: what an undisturbed machine does."""
    from_: int = pydantic.Field(default=1, alias="from")
    to: int = 1 << 40
    nodes: int = 2
    ranks: int = 2
    """Of a test that is not of the network level: on how many nodes, and with how many processes."""
    factor: float = 1.0
    """From the unit of the metric to that of the part."""
    unit: str = ""
    at_least: float = -math.inf
    at_most: float = math.inf

    @pydantic.model_validator(mode="before")
    @classmethod
    def _ahead(cls, data: Any) -> Any:
        """A file may say `ahead = true` in place of the least: the source claims a difference, and a tie is none."""
        if not isinstance(data, dict) or not data.get("ahead"):
            return data
        least = {"ratio": 1 + APART_PERCENT / 100, "reduction": APART_PERCENT}
        if "at_least" in data or data.get("how") not in least:
            raise ValueError("'ahead' takes the place of 'at_least', and is about a 'ratio' or a 'reduction'")
        return {name: each for name, each in data.items() if name != "ahead"} | {"at_least": least[data["how"]]}


class Parts(Data):
    """All of these numbers lie in their ranges."""

    kind: Literal["parts"]
    parts: tuple[Part, ...] = pydantic.Field(min_length=1)


class Gain(Data):
    """By how much one link makes a system better than another does.

    In percent of the reference: so much more, or, where lower is better, so much less.
    """

    name: str
    test: str
    metric: str
    better: Literal["lower", "higher"]
    subject: LinkSide
    reference: LinkSide
    percent: float = pydantic.Field(gt=0)
    """What the source says."""
    of: Literal["mean", "most"] = "mean"
    """The average over the sizes, or the largest."""
    at_most: bool = False
    """The source says that it is up to so much: no more, and no loss."""


class Gains(Data):
    """A system gains from a link what the source says."""

    kind: Literal["gains"]
    level: str = "cloud"
    gains: tuple[Gain, ...] = pydantic.Field(min_length=1)
    share: float = pydantic.Field(gt=0, le=1)
    """Part of each gain that has to be there; so many times it may be at most one."""
    slack_percent: float = pydantic.Field(default=0.0, ge=0)
    """How far from the source's a gain may be in any case, in percentage points."""
    falls: tuple[LinkSide, ...] = ()
    """Sides on which the metric of the first gain is lower at the largest size than at the smallest."""


class Sorts(Data):
    """Every sort is right, ends in time, uses little of its link, and moves more with more servers."""

    kind: Literal["sorts"]
    level: str = "cloud"
    test: str
    seconds: tuple[str, ...] = pydantic.Field(min_length=1)
    """The metrics whose sum is the time."""
    within_s: float = pydantic.Field(gt=0)
    """How long the source's sort takes at most: others have a limit in proportion to the records of a server."""
    records: int = pydantic.Field(ge=1)
    servers: int = pydantic.Field(ge=1)
    metric: str
    """What a worker sends, on average (`mean`) and at most (`max`)."""
    mean_at_most: float = pydantic.Field(gt=0, le=1)
    """Part of the rate of the link that it sends on average, at most."""
    peak_at_most: float = pydantic.Field(gt=0, le=1)
    """And at its peak."""
    total_metric: str
    """What all workers send together."""
    linear_at_least: float = pydantic.Field(gt=0, lt=1)
    """Part of (servers times what one sends, from the fewest) that is reached, at every number of servers."""
    sides: tuple[LinkSide, ...] = pydantic.Field(min_length=1)


class Completes(Data):
    """All of these tests can be carried out, and every run of them completes with the right data."""

    kind: Literal["completes"]
    level: str = "network"
    interconnects: tuple[str, ...] = pydantic.Field(min_length=1)
    tests: tuple[str, ...] = pydantic.Field(min_length=1)
    scales: int = pydantic.Field(default=1, ge=1)
    """With how many different numbers of processes each test must have been run."""


class Mostly(Data):
    """In most cases (sizes, and numbers of processes) the subject is as good as the best reference, or better."""

    kind: Literal["mostly"]
    level: str
    test: str
    metric: str
    better: Literal["lower", "higher"]
    link: str
    subject: Side
    reference: Side
    tolerance: float = pydantic.Field(gt=0, lt=1)
    """Part by which it may be worse and still be as good."""


class Question(Data):
    """What a test says to a question of the source."""

    name: str
    test: str
    metric: str
    better: Literal["lower", "higher"] = "higher"
    link: str | None = None
    """On this link; None: on the first that has it."""


class Answers(Data):
    """The source asks and says nothing: there is nothing to be reproduced, and what was measured is the answer."""

    kind: Literal["answers"]
    level: str
    subject: Side
    reference: Side
    questions: tuple[Question, ...] = pydantic.Field(min_length=1)


#: The rules that may stand together in one.
_Single = Annotated[
    Fails | Completes | Steady | Degrades | Reaches | Linear | Parts | Gains | Sorts | Mostly | Answers,
    pydantic.Field(discriminator="kind"),
]


class All(Data):
    """Several statements of a source, each with a rule of its own; every one of them has to be as claimed."""

    kind: Literal["all"]
    rules: tuple[_Single, ...] = pydantic.Field(min_length=2)


#: The rules that are not about which of two series is better at each size.
NoComparison = Annotated[_Single | All, pydantic.Field(discriminator="kind")]
Rule = Annotated[Similar | Ordered | _Single | All, pydantic.Field(discriminator="kind")]
