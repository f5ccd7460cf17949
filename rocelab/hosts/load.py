"""What others take of the hosts' processors while a step runs, by their agents."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping

from rocelab.hosts.session import HostError, Message
from rocelab.hosts.sessions import Sessions
from rocelab.launch.load_meter import NAMES_EVERY_S, NAMES_KEPT, Taken


class HostsMeter:
    """A `rocelab.study.step_load.Meter` for hosts. The host of which others took the largest part stands for all."""

    def __init__(self, sessions: Sessions) -> None:
        """All hosts are asked before and after each step, whether it is on them or not."""
        self._sessions = sessions
        self._named_at_s: float | None = None

    @property
    def cores(self) -> int:
        """Those of the host that has fewest."""
        return min(len(session.cores) for session in self._sessions.values() if session.introduction.done())

    def begin(self) -> None:
        """A step begins. Agents do what they are asked in turn, so nothing waits for them."""
        self._submit("load-begin")

    def end(self) -> Taken | None:
        """The step has ended. None if no host knows."""
        taken = [Taken(*answer["taken"]) for _, answer in self._ask("load-end") if answer["taken"] is not None]
        return max(taken, key=lambda each: (each.others_cores + each.steal_cores) / each.cores, default=None)

    def note_names(self) -> None:
        """Between steps: look which programs others run. Agents would not look more often, so they are not asked."""
        now_s = time.monotonic()
        if self._named_at_s is None or now_s - self._named_at_s >= NAMES_EVERY_S:
            self._named_at_s = now_s
            self._submit("load-names")

    def top(self) -> Mapping[str, float]:
        """The other programs that used most so far, with their hosts: name to CPU seconds."""
        found: Counter[str] = Counter()
        for host, answer in self._ask("load-top"):
            found.update({f"{name} on {host}": time_s for name, time_s in answer["top"].items()})
        return dict(found.most_common(NAMES_KEPT))

    def _submit(self, operation: str) -> None:
        for session in self._sessions.values():
            session.submit(operation)

    def _ask(self, operation: str) -> Iterator[tuple[str, Message]]:
        """The answers of the hosts that answer."""
        asked = [(session, session.submit(operation)) for session in self._sessions.values()]
        for session, answer in asked:
            try:
                yield session.name, session.await_answer(answer)
            except HostError:
                continue
