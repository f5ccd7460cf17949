"""What holds while a run is under way: one process alone writes to it, and the end of the program is a tidy one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
from collections.abc import Iterator
from types import FrameType

from rocelab.results import ResultsError, RunStore


@contextlib.contextmanager
def sole_writer(store: RunStore) -> Iterator[None]:
    """Keep a second rocelab from going on with the same run at the same time."""
    # A run that is kept for its verdicts has no logs.
    store.logs.mkdir(exist_ok=True)
    folder = os.open(store.logs, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ResultsError(f"run {store.info.id} is under way in another process") from None
        yield
    finally:
        os.close(folder)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end a run as Ctrl-C does: tidily."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        # Once is enough: the second must not disturb the tidying up.
        for number in before:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    for number in before:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
