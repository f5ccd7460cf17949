"""One host, as long as its agent answers: requests and their answers, and what is heard of programs."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field
from typing import Any, Final

from rocelab.fabric.base import LaunchError
from rocelab.hosts.agent import PROTOCOL

#: What an agent answers at once takes no longer than this, also on a busy host.
ANSWER_LIMIT_S: Final = 30.0
_LINES_KEPT: Final = 20

Message = Mapping[str, Any]


class HostError(LaunchError):
    """A host cannot be reached, or its agent is gone. The text is for a person."""


@dataclass
class Clock:
    """How far a host's clock is from ours, as the quickest answer had it."""

    offset_s: float = 0.0
    """Positive: the host's is ahead."""
    within_s: float = float("inf")

    def note(self, sent_s: float, host_s: float, heard_s: float) -> None:
        """An answer that was asked for and heard at these times by our clock, with the time of the host's."""
        within_s = (heard_s - sent_s) / 2
        if within_s < self.within_s:
            self.offset_s, self.within_s = host_s - sent_s - within_s, within_s


@dataclass
class Session:
    """The connection to the agent of one host. `send` takes a line for it and may be called from any thread."""

    name: str
    send: Callable[[bytes], None]
    introduction: Future[Message] = field(default_factory=Future)
    """What the agent says of itself and its host; HostError if it never comes to that."""
    clock: Clock = field(default_factory=Clock)
    lost: str | None = None
    """Why it is over."""
    heard_s: float = field(default_factory=time.monotonic)
    said: list[str] = field(default_factory=list)
    """The last lines that were not the agent's: errors of ssh, greetings of a login shell."""
    _answers: dict[int, Future[Message]] = field(default_factory=dict)
    _programs: dict[int, Callable[[Message], None]] = field(default_factory=dict)
    _numbers: Callable[[], int] = field(default_factory=lambda: itertools.count(1).__next__)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def cores(self) -> list[int]:
        """The cores that programs on the host may use, ascending."""
        cores: list[int] = self.introduction.result()["cores"]
        return cores

    def submit(self, op: str, **fields: object) -> Future[Message]:
        """Ask the agent. The answer comes later; HostError if the session ends before."""
        answer: Future[Message] = Future()
        with self._lock:
            if self.lost is not None:
                answer.set_exception(HostError(self.lost))
                return answer
            number = self._numbers()
            self._answers[number] = answer
        self.send(json.dumps({"id": number, "op": op, **fields}).encode() + b"\n")
        return answer

    def ask(self, op: str, *, limit_s: float = ANSWER_LIMIT_S, **fields: object) -> Message:
        """Ask the agent and wait. LaunchError for what it refuses, HostError if it does not answer."""
        answer = self.await_answer(self.submit(op, **fields), limit_s)
        if "error" in answer:
            raise LaunchError(f"{self.name}: {answer['error']}")
        return answer

    def await_answer(self, answer: Future[Message], limit_s: float = ANSWER_LIMIT_S) -> Message:
        """The answer, whatever it says. HostError if there is none in time."""
        try:
            return answer.result(limit_s)
        except FutureTimeoutError:
            raise HostError(f"{self.name}: its agent has not answered for {limit_s:g} s") from None

    def expect(self, heard: Callable[[Message], None]) -> int:
        """A number for a program. `heard` is called in another thread with each event of it, or with its ``lost``."""
        with self._lock:
            number = self._numbers()
            self._programs[number] = heard
        return number

    def forget(self, number: int) -> None:
        """A program that did not start."""
        with self._lock:
            self._programs.pop(number, None)

    # Called by the thread that reads the connection

    def hear(self, line: bytes) -> None:
        """A line from the host."""
        self.heard_s = time.monotonic()
        try:
            message = json.loads(line) if line.startswith(b"{") else None
        except ValueError:
            message = None
        if not isinstance(message, dict):
            self.note(line)
        elif "id" in message:
            with self._lock:
                answer = self._answers.pop(message["id"], None)
            if answer is not None:
                answer.set_result(message)
        else:
            self._hear_event(message)

    def _hear_event(self, message: Message) -> None:
        if message["event"] == "hello":
            if message["protocol"] == PROTOCOL:
                self.introduction.set_result(message)
            else:
                self.lose(f"{self.name}: the agent there is of another rocelab")
        elif message["event"] == "refusal":
            self.lose(f"{self.name}: {message['error']}")
        else:
            with self._lock:
                ended = message["event"] == "ended"
                heard = (self._programs.pop if ended else self._programs.get)(message["program"], None)
            if heard is not None:
                heard(message)

    def note(self, line: bytes) -> None:
        """A line that is not the agent's."""
        self.said = [*self.said, line.decode(errors="replace").rstrip()][-_LINES_KEPT:]

    def lose(self, why: str) -> None:
        """It is over: tell all that wait. Only the first reason counts."""
        with self._lock:
            if self.lost is not None:
                return
            self.lost = why
            answers, programs = [*self._answers.values()], [*self._programs.values()]
            self._answers.clear()
            self._programs.clear()
        for answer in (self.introduction, *answers):
            if not answer.done():
                answer.set_exception(HostError(why))
        for heard in programs:
            heard({"event": "lost", "why": why})
