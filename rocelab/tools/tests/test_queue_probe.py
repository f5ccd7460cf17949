"""What asks for the queue of a link: each of its datagrams has a round trip, or none."""

from __future__ import annotations

import json
import socket
import subprocess
import threading

from rocelab.tools import queue_probe


def test_each_question_has_a_round_trip_or_none() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", 0))
        answering = threading.Thread(target=_answer_all_but_the_first, args=(other,), daemon=True)
        answering.start()
        round_trips_ms = queue_probe.ask("127.0.0.1", other.getsockname()[1], 0.02)
        answering.join(60)
    assert round_trips_ms[0] is None
    assert all(each is not None and each > 0 for each in round_trips_ms[1:2])


def _answer_all_but_the_first(other: socket.socket) -> None:
    other.recvfrom(64)
    other.sendto(*other.recvfrom(64))


def test_an_end_is_a_program_of_its_own() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", 0))
        command = queue_probe.command("ask", "127.0.0.1", str(other.getsockname()[1]), "0")
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    assert json.loads(done.stdout) in ([], [None])
    assert subprocess.run(queue_probe.command("say"), capture_output=True, check=False, timeout=30).returncode == 2
