"""The agent as one line of text, and the command that runs it on a host: nothing is installed there, or written.

The command reads a line of Python from its standard input and executes it. The line puts a zip archive with the agent
into memory and imports it from there. Nothing is sent after it before the agent has said ``hello``.
"""

from __future__ import annotations

import base64
import functools
import io
import shlex
import zipfile
from pathlib import Path
from typing import Final

#: What the agent imports, as files below the package's folder.
MODULES: Final = (
    "fabric/keeper/channel.py",
    "fabric/keeper/children.py",
    "fabric/keeper/kernel.py",
    "fabric/keeper/program.py",
    "hosts/agent.py",
    "launch/kernel_tables.py",
    "launch/load_meter.py",
    "launch/network_counters.py",
)
#: The oldest Python of hosts on which these run; `test_bundle.py` holds them to it.
PYTHON_OLDEST: Final = (3, 9)
_PACKAGE: Final = Path(__file__).resolve().parents[1]
_START: Final = (
    "import base64, os, sys; "
    'sys.version_info >= {oldest} or sys.exit("Python " + sys.version.split()[0] + ": {words} or newer is needed"); '
    'made = os.memfd_create("rocelab"); os.write(made, base64.b64decode("{archive}")); '
    'sys.path.insert(0, "/proc/self/fd/%d" % made); from rocelab.hosts.agent import main; main()\n'
)


def command(python: str) -> str:
    """What a host's login shell is given, whichever shell that is."""
    return f"{shlex.quote(python)} -I -c 'import sys;exec(sys.stdin.buffer.readline())'"


@functools.cache
def first_line() -> bytes:
    """What the command reads first."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as files:
        packages = {parent for module in MODULES for parent in Path(module).parents}
        for package in sorted(packages):
            files.writestr(str("rocelab" / package / "__init__.py"), "")
        for module in MODULES:
            files.writestr(f"rocelab/{module}", (_PACKAGE / module).read_text(encoding="utf-8"))
    start = _START.format(
        archive=base64.b64encode(archive.getvalue()).decode(),
        oldest=PYTHON_OLDEST,
        words=".".join(map(str, PYTHON_OLDEST)),
    )
    return start.encode()
