"""``urxe stat``: what the urxe of running programs counted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence

from rocelab.tools.base import Executable


def command(urxe: Executable) -> Sequence[str]:
    """Prints the counters of all programs of the user that have queue pairs, on this node."""
    return [urxe.name, "stat", "--json"]


def read(printed: str) -> Mapping[str, int]:
    """The sums over programs and devices, as ``urxe.name``; nothing where it is not what `command` prints."""
    sums: Counter[str] = Counter()
    try:
        for process in json.loads(printed)["processes"]:
            for device in process["devices"]:
                sums.update({f"urxe.{name}": int(count) for name, count in device["counters"].items()})
    except (ValueError, KeyError, TypeError):
        return {}
    return sums
