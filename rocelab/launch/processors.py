"""The processors of this machine, and which of them are threads of one core."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_SYSTEM: Final = Path("/sys/devices/system/cpu")


def usable_cores() -> list[int]:
    """The processors of this machine that this process may use, ascending."""
    return sorted(os.sched_getaffinity(0))


def threads_last(processors: Iterable[int], root: Path = _SYSTEM) -> list[int]:
    """The same processors: first one of each core, then the second threads of the cores, and so on."""
    taken: dict[str, int] = {}
    places = []
    for processor in sorted(processors):
        core = _core_of(processor, root)
        places.append((taken.get(core, 0), processor))
        taken[core] = taken.get(core, 0) + 1
    return [processor for _, processor in sorted(places)]


def count_cores(processors: Iterable[int], root: Path = _SYSTEM) -> int:
    """On how many cores these processors are."""
    return len({_core_of(processor, root) for processor in processors})


def _core_of(processor: int, root: Path) -> str:
    """The same for all threads of a core; each its own where the machine does not tell."""
    try:
        return (root / f"cpu{processor}" / "topology" / "thread_siblings_list").read_text(encoding="ascii").strip()
    except OSError:
        return str(processor)
