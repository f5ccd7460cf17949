"""What the grounds make of a study before anything is measured."""

from __future__ import annotations

import pytest

from rocelab.cli.grounds import EmulatedGround
from rocelab.study.loading import parse

TEXT = """\
schema = 1
id = "side"
title = "Side by side"

[[link]]
id = "direct"
kind = "direct"

[[test]]
test = "side-by-side"
pairs = [1, 2, 8]
sizes_bytes = [64]

[test.variants]
soft-roce = ["send"]
"""


@pytest.mark.parametrize(("processors", "pairs"), [(2, [1]), (8, [1, 2]), (64, [1, 2, 8])])
def test_the_processors_that_rocelab_may_use_decide_what_is_planned(
    processors: int, pairs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(processors)))
    ground = EmulatedGround()
    fitting, left_out = ground.fitting(parse(TEXT, "side.toml"))
    assert {key.ranks // 2 for step in ground.steps(fitting) for key in step.keys} == set(pairs)
    assert len(left_out) == (processors < 16)
    assert all(f"this run has {processors} processors" in words for words in left_out)
