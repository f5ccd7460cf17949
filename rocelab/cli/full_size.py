"""``rocelab run --full-size``: a study at the sizes of its source, and what that takes, said before anything runs."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import psutil

from rocelab.cli.problems import fail, say
from rocelab.cli.studies import duration, known_claims, parse_any, seconds
from rocelab.study.needs import Needs, needs
from rocelab.study.scaling import switched
from rocelab.study.schema import Study
from rocelab.study.steps import Step
from rocelab.virtual.schema import VirtualStudy

_GIB: Final = 1 << 30
_MIB: Final = 1 << 20


def larger(study: Study | VirtualStudy, text: str, name: str) -> tuple[Study, str]:
    """The study at the sizes of its source, and the text that says so. Ends the command where it names none."""
    if isinstance(study, VirtualStudy):
        fail("run", f"{study.id} is simulated, at the rates of its source as it is: no --full-size")
    if study.full_size is None and all(getattr(test, "full_size", None) is None for test in study.test):
        fail(
            "run",
            f"{study.id} does not say how large its source was: no --full-size. A study says it under 'full_size' "
            "(docs/runs.md)",
        )
    changed = switched(text)
    full = parse_any(changed, name, known_claims())
    assert isinstance(full, Study)
    return full.model_copy(update={"folder": study.folder}), changed


def words(needed: Needs) -> str:
    """What is needed, for a person."""
    memory = f"{needed.memory_bytes / _GIB:.1f} GiB of memory" if needed.memory_bytes else "little memory"
    return f"about {duration(needed.seconds)}, {memory} and {math.ceil(needed.disk_bytes / _MIB)} MiB of disk"


def check_needs(plans: Sequence[Sequence[Step]], results: Path, *, is_here: bool) -> None:
    """Say what the plans take, one after the other. Ends the command where this machine has less."""
    each = [needs(steps, seconds(list(steps))) for steps in plans]
    needed = Needs(
        sum(one.seconds for one in each),
        max(one.memory_bytes for one in each),
        sum(one.disk_bytes for one in each),
    )
    if not is_here:
        say(f"At full size: {words(needed)}, of all hosts together.")
        return
    folder = next(parent for parent in (results.absolute(), *results.absolute().parents) if parent.exists())
    memory_bytes, disk_bytes = psutil.virtual_memory().available, shutil.disk_usage(folder).free
    say(
        f"At full size: {words(needed)}. This machine has {memory_bytes / _GIB:.1f} GiB of memory available, and "
        f"{disk_bytes / _GIB:.1f} GiB free in {folder}."
    )
    lacking = [
        what
        for what, wanted, there in (
            ("memory", needed.memory_bytes, memory_bytes),
            ("disk", needed.disk_bytes, disk_bytes),
        )
        if wanted > there
    ]
    if lacking:
        fail(
            "run",
            f"not started, for this machine has too little {' and '.join(lacking)}. Run it on a larger one, or "
            "without --full-size.",
        )
