"""docs/rdma-by-hand.md tells the truth: its commands run, and print what it says."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocelab.fabric import emulated
from rocelab.fabric.base import FabricError, LinkProfile
from rocelab.tools.interconnects import urxe

from .by_hand import PAGE, Step, Terminals, packages_missing, sections

SECTIONS = sections(PAGE.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def fabric() -> Iterator[emulated.EmulatedFabric]:
    try:
        with emulated.up([LinkProfile("direct", "direct")]) as fabric:
            yield fabric
    except FabricError as error:
        pytest.skip(f"no emulated fabric on this machine: {error}")


@pytest.mark.slow
@pytest.mark.fabric
@pytest.mark.parametrize("heading", SECTIONS)
def test_the_commands_of_a_section_print_what_the_page_says(
    heading: str, fabric: emulated.EmulatedFabric, tmp_path: Path
) -> None:
    steps = SECTIONS[heading]
    if packages := packages_missing(steps):
        pytest.skip(f"not installed: apt-get install {' '.join(packages)}")
    if shutil.which(urxe().name) is None:
        pytest.skip(f"urxe is not built: {urxe().remedy}")
    terminals = Terminals(fabric, tmp_path)
    for step in steps:
        terminals.enter(step)
    terminals.close()
    assert len(terminals.outputs) == len(steps)
    for step, printed in terminals.outputs:
        missing = step.missing(printed)
        assert missing is None, f"the page says {missing!r}; the command prints:\n$ {step.command}\n{printed}"
        assert "(exit status" not in printed, f"$ {step.command}\n{printed}"


def test_every_block_of_the_page_is_run_and_shows_something() -> None:
    steps = [step for steps in SECTIONS.values() for step in steps]
    text = PAGE.read_text(encoding="utf-8")
    assert text.count("\n$ ") == len(steps) > 15
    assert text.count("```console") * 2 == text.count("```"), "every example is a terminal"
    assert [step.command for step in steps if not step.shown] == []


def test_a_line_that_is_not_printed_is_found_and_digits_may_differ() -> None:
    step = Step("Terminal 1", "x", ("QP 12 RC RTS", "...", "  lost   7"))
    assert step.missing("QP 900 RC RTS\nother\n lost 1\n") is None
    assert step.missing("QP 900 UD RTS\nlost 1\n") == "QP 12 RC RTS"
    assert step.missing("lost 1\nQP 900 RC RTS\n") == "  lost   7"
