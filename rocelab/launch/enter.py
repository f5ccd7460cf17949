"""Runs a command on another node of an emulated fabric, as `ssh NODE COMMAND` would: the agent of MPI launchers.

Usage: enter.py [OPTIONS] NODE COMMAND...

Nodes cannot enter each other, so this asks the doorkeeper (`doors.py`) in the process that has the fabric, over the
Unix socket of $ROCELAB_ENTER. It passes on its own standard files with the request, and ends as the command does. It
runs once for each node and start, so it imports nothing of rocelab.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import sys
from pathlib import Path


def main() -> None:
    """Ask, and wait for the exit status."""
    words = sys.argv[1:]
    while words and words[0].startswith("-"):
        words.pop(0)  # options of ssh, such as -x
    node, *command = words
    request = {"node": node, "command": command[0] if len(command) == 1 else " ".join(command), "cwd": str(Path.cwd())}
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
        door.connect(os.environ["ROCELAB_ENTER"])
        socket.send_fds(door, [json.dumps(request).encode()], [0, 1, 2])
        door.shutdown(socket.SHUT_WR)
        answer = door.recv(100)
    sys.exit(int(answer) if answer else f"{shlex.join(sys.argv)}: rocelab cannot start this on {node}")


if __name__ == "__main__":
    main()
