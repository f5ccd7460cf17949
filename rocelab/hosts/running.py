"""A program on a host, as its agent tells of it."""

from __future__ import annotations

import base64
import contextlib
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from rocelab.fabric.base import Finished, LaunchError
from rocelab.hosts.session import HostError, Message, Session
from rocelab.launch import logs
from rocelab.launch.starting import refusal

#: Longer than an agent's own limits for stopping (SIGTERM, then SIGKILL until nothing is left).
STOP_LIMIT_S: Final = 30.0


class HostRunning:
    """A `rocelab.fabric.base.Running`."""

    def __init__(self, session: Session, argv: Sequence[str], log: Path | None) -> None:
        """Not started yet: `start` does that."""
        self.pid = 0
        self._session = session
        self._argv = tuple(argv)
        self._log = log
        self.number = session.expect(self._hear)
        """What the agent knows it by."""
        self._started_at = logs.timestamp()
        self._pieces: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
        self._over = threading.Event()
        self._report: Message = {}
        self._finished: Finished | None = None

    @classmethod
    def start(
        cls,
        session: Session,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cores: Collection[int] = (),
        log: Path | None = None,
    ) -> Self:
        """Start a program and return once it is executing. Raises LaunchError."""
        if not argv:
            raise LaunchError(f"{session.name}: no command was given")
        made = cls(session, argv, log)
        request = {"argv": list(argv), "env": dict(env or {}), "cores": sorted(cores)}
        try:
            answer = session.await_answer(session.submit("start", program=made.number, **request))
        except HostError:
            session.forget(made.number)
            raise
        if "started" not in answer:
            session.forget(made.number)
            raise LaunchError(refusal(session.name, request, answer, session.cores))
        made.pid = int(answer["started"])
        return made

    def _hear(self, event: Message) -> None:
        """In the thread that reads the connection."""
        if event["event"] == "output":
            self._pieces[event["stream"]].append(base64.b64decode(event["data"]))
        else:
            self._report = event
            self._over.set()

    def poll(self) -> Finished | None:
        """See `rocelab.fabric.base.Running.poll`."""
        return self._conclude() if self._over.is_set() else None

    def wait(self, timeout_s: float) -> Finished:
        """See `rocelab.fabric.base.Running.wait`."""
        if self._over.wait(max(0.0, timeout_s)):
            return self._conclude()
        return self._end(f"time limit of {timeout_s:g} s", timed_out=True)

    def stop(self) -> Finished:
        """See `rocelab.fabric.base.Running.stop`."""
        return self._conclude() if self._over.is_set() else self._end("stop was asked for")

    def signal(self, number: int) -> None:
        """See `rocelab.fabric.base.Running.signal`."""
        if not self._over.is_set():
            self._session.submit("signal", program=self.number, number=number)

    def output(self) -> tuple[str, str]:
        """See `rocelab.fabric.base.Running.output`."""
        if not self._over.is_set():
            answer = self._session.await_answer(self._session.submit("output", program=self.number))
            if "error" not in answer:
                return answer["stdout"], answer["stderr"]
            # It has ended this moment, and its report is on its way.
            self._over.wait(STOP_LIMIT_S)
        finished = self._conclude()
        return finished.stdout, finished.stderr

    def _end(self, because: str, *, timed_out: bool = False) -> Finished:
        with contextlib.suppress(HostError):
            self._session.submit("stop", program=self.number, because=because)
        deadline_s = time.monotonic() + STOP_LIMIT_S
        if not self._over.wait(deadline_s - time.monotonic()):
            raise HostError(f"{self._session.name}: {self._argv[0]} (pid {self.pid}) is lost: it cannot be stopped")
        return self._conclude(timed_out=timed_out)

    def _conclude(self, *, timed_out: bool = False) -> Finished:
        if self._finished is not None:
            return self._finished
        report = self._report
        if report["event"] == "lost":
            stderr = b"".join(self._pieces["stderr"]).decode(errors="replace").rstrip()
            raise HostError(f"{self._argv[0]} is lost: {report['why']}" + (f"\n{stderr}" if stderr else ""))
        because = report["stopped_because"] or report.get("lost")
        if report.get("survivors"):
            because = f"{because or 'it ended'}; {report['survivors']} of its processes cannot be killed"
        self._finished = Finished(
            exit_status=int(report["exit_status"]),
            stdout=b"".join(self._pieces["stdout"]).decode(errors="replace"),
            stderr=b"".join(self._pieces["stderr"]).decode(errors="replace"),
            wall_s=float(report.get("wall_s", 0.0)),
            cpu_user_s=float(report.get("cpu_user_s", 0.0)),
            cpu_system_s=float(report.get("cpu_system_s", 0.0)),
            timed_out=timed_out and because is not None,
            stopped_because=because,
        )
        self._pieces.clear()
        if self._log is not None:
            logs.append(self._log, self._session.name, self._argv, self._started_at, self._finished)
        return self._finished
