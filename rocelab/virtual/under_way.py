"""Programs that simulate, all of which an interruption ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence

from rocelab.tools.base import ToolError


class UnderWay:
    """The programs that are under way. Any number of threads may start some."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[subprocess.Popen[str], bool] = {}
        self._stopped = False

    @contextlib.contextmanager
    def start(self, argv: Sequence[str], *, is_script: bool = False) -> Iterator[subprocess.Popen[str]]:
        """Have a program run until the end of the block, with pipes. What a script starts ends with it.

        Raises ToolError if it cannot be started, or nothing may be any more.
        """
        with self._lock:
            if self._stopped:
                raise ToolError("the run was interrupted")
            try:
                process = subprocess.Popen(
                    argv,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    start_new_session=is_script,
                )
            except OSError as error:
                raise ToolError(f"{argv[0]}: {error.strerror}") from None
            self._running[process] = is_script
        try:
            with process:
                yield process
        finally:
            with self._lock:
                del self._running[process]

    @property
    def count(self) -> int:
        """How many there are."""
        with self._lock:
            return len(self._running)

    def stop(self) -> None:
        """End them, and start no more."""
        with self._lock:
            self._stopped = True
            for process, is_script in self._running.items():
                if not is_script:
                    process.kill()
                    continue
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
