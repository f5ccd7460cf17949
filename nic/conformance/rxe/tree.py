"""Lists what an RDMA device shows in /sys, a line for each thing: `python3 tree.py DEVICE`.

A line is the kind (d, l, f), the permissions, the path, and as JSON where a link leads or what is
in a file. `!` and the name of the error stand for a file that cannot be read. Of numbered entries
only the first and the last are listed. It runs for Linux rxe in the guest, and for urxe
(nic/preload/tests/sysfs.rs), so the two can be compared.
"""

from __future__ import annotations

import errno
import json
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

CLASS = Path("/sys/class")
VERBS = "infiniband_verbs"


def listed(folder: Path, name: str) -> Iterator[str]:
    """What is in a folder, which is called `name`, and below it."""
    names = sorted(each.name for each in folder.iterdir())
    numbers = sorted((each for each in names if each.isdecimal()), key=int)
    for each in names:
        if each not in numbers or each in (numbers[0], numbers[-1]):
            yield from described(folder / each, f"{name}/{each}")


def described(path: Path, name: str) -> Iterator[str]:
    """What is at a path."""
    mode = path.lstat().st_mode
    permissions = f"{stat.S_IMODE(mode):03o}"
    if stat.S_ISLNK(mode):
        yield f"l {permissions} {name} {json.dumps(str(path.readlink()))}"
    elif stat.S_ISDIR(mode):
        yield f"d {permissions} {name}"
        yield from listed(path, name)
    else:
        yield f"f {permissions} {name} {content(path)}"


def content(path: Path) -> str:
    """What a file says."""
    try:
        return json.dumps(path.read_text(encoding="utf-8"))
    except OSError as error:
        return "!" + errno.errorcode[error.errno or 0]


def main() -> None:
    """Print the device's folder, and that of its character device."""
    (device,) = sys.argv[1:]
    folders = (each for each in (CLASS / VERBS).iterdir() if each.is_dir())
    verbs = next(each for each in folders if (each / "ibdev").read_text(encoding="utf-8").strip() == device)
    for folder, name in ((CLASS / "infiniband" / device, "infiniband"), (verbs, VERBS)):
        print(f"l 777 {name} {json.dumps(str(folder.readlink()))}")
        print("\n".join(listed(folder, name)))


if __name__ == "__main__":
    main()
