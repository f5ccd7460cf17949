"""The fabric `hosts`: machines that are there, as nodes that studies run on."""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Collection, Mapping, Sequence
from importlib import resources
from types import TracebackType
from typing import Any, Final, Self

from rocelab.fabric.base import FabricError, LaunchError, LinkProfile, Node
from rocelab.hosts import rails
from rocelab.hosts.inventory import Inventory, folded
from rocelab.hosts.rails import Facts, Rail
from rocelab.hosts.running import HostRunning
from rocelab.hosts.session import HostError, Session
from rocelab.hosts.sessions import Sessions

_FACTS_LIMIT_S: Final = 60.0


class HostsFabric:
    """Hosts with a session each. Whatever ends it, the agents end everything that they have started."""

    def __init__(
        self, inventory: Inventory, sessions: Sessions, facts: Mapping[str, Facts], found: Sequence[Rail]
    ) -> None:
        self.inventory = inventory
        self.sessions = sessions
        self.facts = facts
        self.run_name = secrets.token_hex(4)
        """What the run's programs have in their environment."""
        self.common_folder = common_folder(sessions, self.run_name)
        self.rails = {rail.id: rail for rail in found}
        self.name = "hosts"
        self.nodes = tuple(_node(name, index, found) for index, name in enumerate(facts))
        # Nothing is made of it: `bridge` says that all nodes are joined.
        self.links = tuple(
            LinkProfile(
                rail.id,
                "bridge",
                mtu_bytes=rail.mtu_bytes or 0,
                rate_mbps=rail.rate_mbps,
                switches=self.switches,
            )
            for rail in found
        )

    @property
    def switches(self) -> tuple[str, ...]:
        """The access switch of each node; empty where nothing is said of them."""
        return tuple(self.inventory.switches[node.name] for node in self.nodes) if self.inventory.switches else ()

    def dropped_packets(self, link: str) -> None:  # noqa: ARG002 -- nothing is made of their links
        """See `rocelab.fabric.base.Fabric.dropped_packets`: none is dropped on purpose."""
        return

    def close(self) -> None:
        """End the agents with all that they run."""
        self.sessions.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def common_folder(sessions: Sessions, name: str) -> str | None:
    """A name of the folders of the run that they have on all hosts; None where temporary files have other places.

    A host that is lost at this moment is told of by what is measured on it.
    """
    asked = [(session, session.submit("name-folder", name=name)) for session in sessions.values()]
    paths: set[str | None] = set()
    for session, answer in asked:
        with contextlib.suppress(HostError):
            paths.add(session.await_answer(answer).get("path"))
    (path,) = paths if len(paths) == 1 else (None,)
    return path


def _node(name: str, index: int, found: Sequence[Rail]) -> Node:
    ends = {rail.id: rail.ends[name] for rail in found}
    return Node(
        name=name,
        index=index,
        addresses={rail: end.address for rail, end in ends.items()},
        addresses6={},
        interfaces={rail: end.interface for rail, end in ends.items()},
        devices={rail: end.device for rail, end in ends.items() if end.device is not None},
        pid=0,
    )


def up(inventory: Inventory, *, programs: Sequence[str] = (), without: Collection[str] = ()) -> HostsFabric:
    """Reach the hosts, but for those to do `without`, and find out what they are and which networks join them.

    Raises FabricError, which names every host that cannot be used and says why.
    """
    chosen = inventory.without(without)
    with contextlib.ExitStack() as unless_up:
        sessions = unless_up.enter_context(Sessions(chosen))
        failures = sessions.open()
        facts: dict[str, Facts] = {}
        if not failures:
            facts, failures = ask_all(sessions, programs)
        if failures:
            raise FabricError(_unusable(failures, len(chosen.names)))
        fabric = HostsFabric(chosen, sessions, facts, rails.find(facts, chosen.table.rail))
        unless_up.pop_all()
    return fabric


def _unusable(failures: Mapping[str, str], hosts: int) -> str:
    lines = "\n".join(f"  {why}" for why in failures.values())
    return f"{len(failures)} of {hosts} hosts cannot be used:\n{lines}\n" + (
        "Mend them." if len(failures) == hosts else f"Mend them, or do without them: --without {folded(failures)}"
    )


def ask_all(sessions: Sessions, programs: Sequence[str]) -> tuple[dict[str, Facts], dict[str, str]]:
    """What all hosts that can be reached say of themselves, and why some say nothing; by name."""
    running: dict[str, HostRunning] = {}
    failures: dict[str, str] = {}
    facts: dict[str, Any] = {}
    for name, session in sessions.items():
        if session.lost is None:
            try:
                running[name] = _start_facts(session, programs)
            except LaunchError as failure:
                failures[name] = str(failure)
    for name, each in running.items():
        try:
            finished = each.wait(_FACTS_LIMIT_S)
            facts[name] = json.loads(finished.stdout)
        except HostError as failure:
            failures[name] = str(failure)
        except ValueError:
            failures[name] = f"{name} says nothing of itself: {finished.stderr.strip() or finished.stopped_because}"
    return facts, failures


def ask_programs(session: Session, programs: Sequence[str]) -> dict[str, Facts]:
    """What one host says of programs: their place and version. Those that are not there are left out."""
    finished = _start_facts(session, ["--programs", *programs]).wait(_FACTS_LIMIT_S)
    try:
        found: dict[str, Facts] = json.loads(finished.stdout)
    except ValueError:
        raise LaunchError(f"{session.name} says nothing of its programs: {finished.stderr.strip()}") from None
    return found


def _start_facts(session: Session, words: Sequence[str]) -> HostRunning:
    text = (resources.files("rocelab.hosts") / "facts.py").read_text(encoding="utf-8")
    python = session.introduction.result()["python"]
    return HostRunning.start(session, [python, "-I", "-c", text, *words])
