"""What is shown of a run under way."""

from __future__ import annotations

import io

from rich.console import Console

from rocelab.cli.progress import watch
from rocelab.study.tests import small


def test_a_plan_that_changes_is_said_and_counted_to_its_new_end() -> None:
    said = io.StringIO()
    steps = small.steps()
    console = Console(file=said, width=200)
    with watch("small", steps[:2], console) as watcher:
        for step in steps[:2]:
            watcher.started(step)
            watcher.ended(step, None)
        watcher.replanned(steps[2:4], "spending up to 40 s more on 1 cell that is not clear yet")
        watcher.started(steps[2])
    lines = said.getvalue().splitlines()
    assert lines[-2] == "small: spending up to 40 s more on 1 cell that is not clear yet"
    assert lines[-1].startswith("small:  50 %")


def test_a_bar_gets_longer_with_the_plan() -> None:
    steps = small.steps()
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    with watch("small", steps[:1], console) as watcher:
        watcher.started(steps[0])
        watcher.ended(steps[0], None)
        watcher.replanned(steps[1:3], "more")
        assert vars(watcher)["total"] == 3
