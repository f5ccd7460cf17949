"""Child processes in a loop that waits for files: being woken when one ends, and collecting those that have."""

from __future__ import annotations

import os
import signal


class ChildWatch:
    """A file that becomes readable whenever a child of this process ends; for select.poll."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._writer)
        # Python writes to the wake-up file only for signals that have a handler.
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def fileno(self) -> int:
        """The file to poll."""
        return self._reader

    def clear(self) -> None:
        """Make the file unreadable until the next child ends. Collect the children after this, not before."""
        os.read(self._reader, 512)

    def forget(self) -> None:
        """In a forked child: let go of the parent's watch."""
        signal.set_wakeup_fd(-1)
        os.close(self._reader)
        os.close(self._writer)


def reap() -> None:
    """Collect every child that has ended, so that none stays as a zombie."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
