"""Runs in the guest: starts the programs that the host asks for, and says how they ended.

Usage: agent.py PORT

A connection is one program. The host sends a line of JSON, `{"argv": [...], "env": {...}, "limit_s": 20}`. What the
program prints comes back as it is printed; the last line is its exit status, as JSON. A host that hangs up stops it.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import socket
import socketserver
import subprocess
import sys
import time


class Program(socketserver.StreamRequestHandler):
    """One program, from its start to its end."""

    def handle(self) -> None:
        """Start it, pass on what it prints, and its status."""
        if not (line := self.rfile.readline()):
            return  # It only wanted to know whether the guest is up.
        asked = json.loads(line)
        program = subprocess.Popen(
            asked["argv"],
            env={**os.environ, **asked["env"]},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        deadline_s = time.monotonic() + asked["limit_s"]
        try:
            self._pass_on(program, deadline_s)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
            status = program.wait()
        self.wfile.write(b"\n" + json.dumps(status).encode() + b"\n")

    def _pass_on(self, program: subprocess.Popen[bytes], deadline_s: float) -> None:
        assert program.stdout is not None
        while (left_s := deadline_s - time.monotonic()) > 0:
            ready, _, _ = select.select([program.stdout, self.connection], [], [], left_s)
            if self.connection in ready and not self.connection.recv(1, socket.MSG_PEEK):
                return
            if program.stdout in ready:
                if not (printed := os.read(program.stdout.fileno(), 65536)):
                    program.wait(max(0.1, deadline_s - time.monotonic()))
                    return
                self.wfile.write(printed)


class Agent(socketserver.ThreadingTCPServer):
    """Serves any number of programs at once."""

    allow_reuse_address = True
    daemon_threads = True


if __name__ == "__main__":
    # siw lets no program lock more memory than that, whatever its rights are.
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    with Agent(("", int(sys.argv[1])), Program) as agent:
        agent.serve_forever()
