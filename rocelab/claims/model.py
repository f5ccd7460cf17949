"""Claims as they stand in ``data/*.toml``: one file per source, one entry per claim, with the rule that judges it."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable
from functools import cache
from importlib import resources
from typing import Annotated, Literal

import pydantic


class ClaimError(Exception):
    """A claim that does not exist, or claim data that is wrong."""


class _Data(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)


class Side(_Data):
    """One of the two things a claim compares."""

    name: str
    interconnect: str
    variant: str


class SizeRange(_Data):
    """Message sizes from one to another, both included."""

    from_bytes: int = pydantic.Field(ge=1)
    to_bytes: int = pydantic.Field(ge=1)


class Expectation(SizeRange):
    """Which side the claim says is better in a range of sizes."""

    better: Literal["subject", "reference"]


class Comparison(_Data):
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


class Fails(_Data):
    """Runs of these tests fail or hang, and not only once in a while."""

    kind: Literal["fails"]
    at_least: float = pydantic.Field(gt=0, le=1)
    """Share of the runs of a test that must fail to bear the claim out."""
    interconnect: str
    name: str
    level: str = "network"
    tests: tuple[str, ...]


Rule = Annotated[Similar | Ordered | Fails, pydantic.Field(discriminator="kind")]


class Source(_Data):
    """Where claims come from."""

    id: str
    title: str
    testbed: str


class Claim(_Data):
    """One claim: what was said, on what, and how this program decides about it."""

    id: str
    test: str
    """The program the source used."""
    text: str
    """The claim, in our words."""
    stand_in: str
    """What is run here in place of the source's program, and how it differs."""
    rule_text: str
    """The rule in words, including every number in it that the source does not give."""
    rule: Rule
    source: Source


@cache
def all_claims() -> tuple[Claim, ...]:
    """Every claim known, by source and in the order of the source."""
    folder = resources.files("rocelab.claims").joinpath("data")
    claims: list[Claim] = []
    for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if not file.name.endswith(".toml"):
            continue
        data = tomllib.loads(file.read_text(encoding="utf-8"))
        claims += [Claim.model_validate(entry | {"source": data["source"]}) for entry in data["claim"]]
    ids = [claim.id for claim in claims]
    if len(ids) != len(set(ids)):
        raise ClaimError(f"claim ids are not unique: {sorted({each for each in ids if ids.count(each) > 1})}")
    return tuple(claims)


def claims_by_id(ids: Iterable[str]) -> tuple[Claim, ...]:
    """The claims with these ids, in this order; an unknown id is an error that suggests a known one."""
    known = {claim.id: claim for claim in all_claims()}
    found: list[Claim] = []
    for claim_id in ids:
        if claim_id not in known:
            close = difflib.get_close_matches(claim_id.upper(), known, 1, cutoff=0.5)
            hint = f" (did you mean {close[0]}?)" if close else ""
            raise ClaimError(f"no claim has the id {claim_id!r}{hint}; known: {', '.join(known)}")
        found.append(known[claim_id])
    return tuple(found)
