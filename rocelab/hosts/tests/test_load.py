"""What others take of the hosts' processors, put together from what the hosts say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from rocelab.hosts.fabric import common_folder
from rocelab.hosts.load import HostsMeter
from rocelab.hosts.session import Session
from rocelab.launch.load_meter import Taken


def session(name: str, answers: Mapping[str, Any], asked: list[str]) -> Session:
    """A host that answers at once."""
    made: Session

    def send(line: bytes) -> None:
        question = json.loads(line)
        asked.append(question["op"])
        made.hear(json.dumps({"id": question["id"], **answers.get(question["op"], {})}).encode())

    made = Session(name, send)
    introduction: Future[Mapping[str, Any]] = made.introduction
    introduction.set_result({"cores": [0, 1, 2, 3]})
    return made


def meter(*hosts: Session) -> HostsMeter:
    return HostsMeter({each.name: each for each in hosts})  # type: ignore[arg-type]


def both(first: Mapping[str, Any], second: Mapping[str, Any], asked: list[str] | None = None) -> HostsMeter:
    noted = [] if asked is None else asked
    return meter(session("n1", first, noted), session("n2", second, noted))


def test_the_host_of_which_most_was_taken_stands_for_all() -> None:
    found = both({"load-end": {"taken": [1.0, 0.0, 8]}}, {"load-end": {"taken": [0.5, 0.2, 2]}})
    assert found.end() == Taken(0.5, 0.2, 2)
    assert found.cores == 4


def test_hosts_that_do_not_know_or_are_lost_are_left_out() -> None:
    known = session("n1", {"load-end": {"taken": [0.1, 0.0, 2]}}, [])
    unknown = session("n2", {"load-end": {"taken": None}}, [])
    gone = session("n3", {}, [])
    gone.lose("n3 is lost")
    assert meter(known, unknown, gone).end() == Taken(0.1, 0.0, 2)
    assert meter(unknown, gone).end() is None


def test_the_programs_that_used_most_are_named_with_their_hosts() -> None:
    found = both({"load-top": {"top": {"java": 9.0, "cc1": 0.5}}}, {"load-top": {"top": {"java": 4.0, "sh": 1.0}}})
    assert found.top() == {"java on n1": 9.0, "java on n2": 4.0, "sh on n2": 1.0}


def test_all_hosts_are_asked_before_and_between_steps() -> None:
    asked: list[str] = []
    found = both({}, {}, asked)
    found.begin()
    found.note_names()
    found.note_names()  # at once: there is nothing new to see
    assert asked == ["load-begin", "load-begin", "load-names", "load-names"]


def test_a_lost_host_leaves_the_others_their_common_folder() -> None:
    gone = session("n2", {}, [])
    gone.lose("n2 is lost")
    hosts = {"n1": session("n1", {"name-folder": {"path": "/tmp/all"}}, []), "n2": gone}
    assert common_folder(hosts, "ab") == "/tmp/all"  # type: ignore[arg-type]
    hosts["n3"] = session("n3", {"name-folder": {"path": "/scratch/all"}}, [])
    assert common_folder(hosts, "ab") is None  # type: ignore[arg-type]
