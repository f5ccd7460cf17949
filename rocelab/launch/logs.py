"""The log of a step: what each of its programs was, said, and cost."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from pathlib import Path

from rocelab.fabric.base import Finished


def timestamp() -> str:
    """Now, as logs have it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def append(log: Path, node: str, argv: Sequence[str], started_at: str, finished: Finished) -> None:
    """Add a program that has ended."""
    parts = [f"[{started_at} {node}] $ {shlex.join(argv)}\n"]
    for title, text in (("stdout", finished.stdout), ("stderr", finished.stderr)):
        if text:
            parts.append(f"--- {title}\n{text}{'' if text.endswith(chr(10)) else chr(10)}")
    because = f", stopped: {finished.stopped_because}" if finished.stopped_because else ""
    parts.append(
        f"--- exit status {finished.exit_status}, {finished.wall_s:.3f} s, CPU {finished.cpu_user_s:.3f} s user "
        f"+ {finished.cpu_system_s:.3f} s system{because}\n\n"
    )
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as file:
        file.write("".join(parts))
