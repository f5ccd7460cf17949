"""Requests, answers and events of one host, without a connection."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rocelab.fabric.base import LaunchError
from rocelab.hosts.agent import PROTOCOL
from rocelab.hosts.session import Clock, HostError, Session


class Line:
    """A session whose lines are kept."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.session = Session("n1", lambda line: self.sent.append(json.loads(line)))

    def hear(self, **message: Any) -> None:
        self.session.hear(json.dumps(message).encode())


@pytest.fixture
def line() -> Line:
    return Line()


def test_an_answer_goes_to_its_request(line: Line) -> None:
    first, second = line.session.submit("a", x=1), line.session.submit("b")
    assert [message["op"] for message in line.sent] == ["a", "b"]
    line.hear(id=line.sent[1]["id"], y=2)
    line.hear(id=line.sent[0]["id"], y=1)
    assert (first.result(0)["y"], second.result(0)["y"]) == (1, 2)


def test_what_the_agent_refuses_is_said_with_the_host(line: Line) -> None:
    line.session.send = lambda sent: line.hear(id=json.loads(sent)["id"], error="there is no interface eth9")
    with pytest.raises(LaunchError, match="n1: there is no interface eth9"):
        line.session.ask("sent-bytes")


def test_an_agent_that_does_not_answer_is_not_waited_for(line: Line) -> None:
    with pytest.raises(HostError, match=r"n1: its agent has not answered for 0\.01 s"):
        line.session.ask("alive", limit_s=0.01)


def test_greetings_of_a_login_shell_are_no_messages(line: Line) -> None:
    for words in (b"Welcome to the cluster", b"{not json", b'["a list"]', b"\xff\xfe"):
        line.session.hear(words)
    assert line.session.lost is None
    assert line.session.said[0] == "Welcome to the cluster"
    line.hear(event="hello", protocol=PROTOCOL, cores=[0])
    assert line.session.cores == [0]


def test_an_agent_of_another_version_is_refused(line: Line) -> None:
    line.hear(event="hello", protocol=PROTOCOL + 1)
    with pytest.raises(HostError, match="of another rocelab"):
        line.session.introduction.result(0)


def test_an_agent_that_cannot_begin_says_why(line: Line) -> None:
    line.hear(event="refusal", error="/tmp: No space left on device")
    with pytest.raises(HostError, match="n1: /tmp: No space left on device"):
        line.session.introduction.result(0)


def test_all_that_wait_are_told_when_a_host_is_lost(line: Line) -> None:
    heard: list[Any] = []
    number = line.session.expect(heard.append)
    line.hear(event="output", program=number, stream="stdout", data="")
    answer = line.session.submit("output", program=number)
    line.session.lose("n1 is lost: the connection by ssh has ended")
    line.session.lose("a second reason")
    for waiting in (answer, line.session.introduction, line.session.submit("alive")):
        with pytest.raises(HostError, match="the connection by ssh has ended"):
            waiting.result(0)
    assert [event["event"] for event in heard] == ["output", "lost"]


def test_the_quickest_answer_tells_how_far_a_clock_is_off() -> None:
    clock = Clock()
    clock.note(100.0, 107.0, 104.0)
    clock.note(200.0, 205.1, 200.2)
    clock.note(300.0, 309.0, 302.0)
    assert clock.offset_s == pytest.approx(5.0)
    assert clock.within_s == pytest.approx(0.1)
