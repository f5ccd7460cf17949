"""Starts a virtual machine of QEMU and moves it to where another waits for it, over RDMA.

Usage: migrate.py PROGRAM ADDRESS OPTION ...
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

PORT = 4444
LIMIT_S = 120.0


class Machine:
    """A machine, and its monitor on standard input and output."""

    def __init__(self, *command: str) -> None:
        self._process = subprocess.Popen(
            [*command, "-qmp", "stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, what: str, **arguments: object) -> Any:
        """Give the monitor a command, and return its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps({"execute": what, "arguments": arguments}), file=self._process.stdin, flush=True)
        for line in self._process.stdout:
            # Among them is what its RDMA says about devices.
            answer = json.loads(line) if line.startswith("{") else {}
            if "error" in answer:
                sys.exit(f"{what}: {answer['error']['desc']}")
            if "return" in answer:
                return answer["return"]
        sys.exit(f"the machine ended at {what}")

    def wait(self) -> None:
        """Wait for its end."""
        self._process.wait(LIMIT_S)


def main(program: str, address: str, *options: str) -> None:
    """Move a machine."""
    machine = Machine(program, *options)
    machine.ask("qmp_capabilities")
    machine.ask("migrate", uri=f"rdma:{address}:{PORT}")
    deadline_s = time.monotonic() + LIMIT_S
    while (state := machine.ask("query-migrate"))["status"] not in ("completed", "failed"):
        if time.monotonic() > deadline_s:
            sys.exit(f"still {state['status']}")
        time.sleep(0.05)
    print(f"{state['status']}: {state['ram']['transferred']} bytes", flush=True)
    machine.ask("quit")
    machine.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
