"""How much the verdict on a simulated run says: in how many draws its rule holds, and if networks matter."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

from rocelab.claims.finding import Verdict
from rocelab.stats import text

#: Part of the draws in which a rule must hold for its claim to be reproduced.
HELD_AT_LEAST: Final = 0.9


@dataclass(frozen=True, slots=True)
class Certainty:
    """What stands beside the verdict on a simulated run."""

    drawn: Literal["all", "some", "none"]
    """Whether the run has all draws of what the claim is judged by."""
    count: int
    """How many draws the run is to have."""
    held: int
    """In how many of them the rule holds, if it has all."""
    as_they_are: Verdict
    """The verdict with the profiles as they are."""
    null_passes: bool
    """Whether the rule also holds where all networks are alike."""

    @property
    def is_decided(self) -> bool:
        """Whether the profiles as they are give a verdict: else the null model is not held against it."""
        return self.as_they_are in (Verdict.REPRODUCED, Verdict.CONTRADICTED)

    @property
    def needed(self) -> int:
        """In how many draws the rule has to hold."""
        return math.ceil(HELD_AT_LEAST * self.count - 1e-9)

    @property
    def verdict(self) -> Verdict:
        """The verdict: what is reproduced has to hold whatever is assumed."""
        too_few = self.drawn == "all" and self.held < self.needed
        return Verdict.NOT_CHECKABLE if too_few and self.as_they_are is Verdict.REPRODUCED else self.as_they_are

    @property
    def words(self) -> str:
        """A sentence or two."""
        if self.drawn == "none":
            said = "No draws of what the profiles assume."
        elif self.drawn == "some":
            said = f"Not all of the {text.plural(self.count, 'draw')} of what the profiles assume have been simulated."
        else:
            said = f"The rule holds in {self.held} of {text.plural(self.count, 'draw')} of what the profiles assume."
            if self.verdict is not self.as_they_are:
                said += f" With the profiles as they are it holds; {self.needed} draws are needed."
        return f"{said} It also holds where all networks are alike, so it says little." if self.null_passes else said
