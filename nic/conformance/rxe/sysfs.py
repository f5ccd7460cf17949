"""What Linux rxe shows in /sys is what nic/preload/tests/data/rxe_sysfs.txt says: `make interop`.

The tests of urxe compare its own files with that list. `URXE_WRITE_LIST=1 make interop` writes it anew.
"""

from __future__ import annotations

import os
import re

from .guest import GUEST_DEVICE, HERE, Guest
from .kernels import ROOT

LIST = ROOT / "nic" / "preload" / "tests" / "data" / "rxe_sysfs.txt"


def test_rxe_shows_what_is_listed(guest: Guest) -> None:
    """Names, kinds and permissions are the same; what is in a file may differ from run to run."""
    ran = guest.run(["/usr/bin/python3", str(HERE / "tree.py"), GUEST_DEVICE])
    assert ran.status == 0, ran.output
    if os.environ.get("URXE_WRITE_LIST"):
        head = f"# Linux {guest.kernel}, by nic/conformance/rxe/tree.py"
        LIST.write_text(f"{head}\n{ran.output.strip()}\n", encoding="utf-8")
    assert things(ran.output) == things(LIST.read_text(encoding="utf-8"))


def things(text: str) -> list[str]:
    """The kind, permissions and path of each line."""
    return [found[0] for found in re.finditer(r"^[dlf] \d+ \S+", text, re.MULTILINE)]
