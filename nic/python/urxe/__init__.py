"""An RDMA device in software, for programs and tests: where the command `urxe` is, and whether its device is there."""

from __future__ import annotations

import os
import shutil
import sysconfig
from pathlib import Path


class NoUrxeError(Exception):
    """The command is not there. The text is for a person, and says what to do."""


def command() -> str:
    """The path of the command `urxe`: what $ROCELAB_URXE names, what is installed beside this Python, or PATH's.

    Raises NoUrxeError.
    """
    named = os.environ.get("ROCELAB_URXE")
    candidates = [named] if named else [str(Path(sysconfig.get_path("scripts"), "urxe")), "urxe"]
    for candidate in candidates:
        found = shutil.which(candidate)
        if found is not None:
            return found
    where = f"{named}, which $ROCELAB_URXE names, is not there" if named else "there is no command `urxe`"
    raise NoUrxeError(f"{where}: install the wheel of urxe or rocelab again, or name the command in $ROCELAB_URXE")


def is_loaded() -> bool:
    """Whether this process was started by `urxe run`, so that it and what it starts have the device."""
    preloaded = os.environ.get("LD_PRELOAD", "").replace(":", " ").split()
    return any(Path(each).name == "liburxe.so" for each in preloaded)
