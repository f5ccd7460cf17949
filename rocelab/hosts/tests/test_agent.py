"""The agent as a program of its own: what it starts, what it says, and that it leaves nothing behind."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import vermin

from rocelab.hosts import bundle
from rocelab.hosts.agent import COMMON_PREFIX, FOLDER_PREFIX

LIMIT_S = 60.0


class Agent:
    """One agent, started as on a host: from one line of text."""

    def __init__(self, folder: Path, before: str = "") -> None:
        env = {**os.environ, "TMPDIR": str(folder), "GREETING": "from the host"}
        # A login shell stays, and would be what is killed in place of the agent.
        command = ["sh", "-c", f"exec {bundle.command(sys.executable)}"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
        assert self.process.stdin is not None
        line = bundle.first_line().decode()
        self.write(line.replace("main()\n", f"{before}main()\n").encode())
        self.hello = self.hear()

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        heard: dict[str, Any] = json.loads(self.process.stdout.readline() or "null")
        return heard

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        self.write(json.dumps({"id": 1, "op": op, **fields}).encode() + b"\n")
        return self.hear()

    def start(self, *argv: str, **fields: Any) -> dict[str, Any]:
        return self.ask("start", program=7, **{"argv": argv, "env": {}, "cores": [], **fields})

    def until_ended(self) -> tuple[dict[str, str], dict[str, Any]]:
        output = {"stdout": "", "stderr": ""}
        while (event := self.hear())["event"] == "output":
            output[event["stream"]] += base64.b64decode(event["data"]).decode()
        return output, event

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(LIMIT_S) == 0


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Callable[..., Agent]]:
    """Makes agents that are gone after the test."""
    made: list[Agent] = []

    def make(before: str = "") -> Agent:
        made.append(Agent(tmp_path, before))
        return made[-1]

    yield make
    for each in made:
        each.process.kill()
        with each.process:
            pass


@pytest.fixture
def agent(agents: Callable[..., Agent]) -> Agent:
    return agents()


def gone(pid: int) -> bool:
    """Whether a process ends within the limit."""
    deadline_s = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline_s:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.01)
    return False


def test_it_runs_with_the_oldest_python_that_hosts_may_have() -> None:
    config = vermin.Config()
    for module in bundle.MODULES:
        path = Path(bundle.__file__).parents[1] / module
        versions = vermin.detect(path.read_text(), config)
        newest = max(version for version in versions if version is not None)
        assert newest <= bundle.PYTHON_OLDEST, module


def test_a_program_has_the_hosts_environment_and_its_own(agent: Agent) -> None:
    assert agent.start("sh", "-c", 'echo "$GREETING, $X"; echo oops >&2; exit 3', env={"X": "y"})["started"] > 1
    output, event = agent.until_ended()
    assert output == {"stdout": "from the host, y\n", "stderr": "oops\n"}
    assert (event["exit_status"], event["stopped_because"]) == (3, None)
    assert event["wall_s"] > 0


def test_long_output_comes_in_pieces_and_whole(agent: Agent) -> None:
    agent.start(sys.executable, "-c", "print('0123456789abcde\\n' * 20000, end='')")
    output, _ = agent.until_ended()
    assert output["stdout"] == "0123456789abcde\n" * 20000


def test_a_program_that_cannot_start_is_refused_with_the_step(agent: Agent) -> None:
    assert agent.start("no-such-program") == {"id": 1, "refused": "execute", "errno": 2}
    assert agent.start("true", cores=[4000])["refused"] == "cores"


def test_output_so_far_can_be_asked_for_and_a_program_stopped(agent: Agent) -> None:
    agent.start("sh", "-c", "echo begun; exec sleep 1000")
    while (said := agent.ask("output", program=7))["stdout"] != "begun\n":
        assert said["stdout"] == ""
    assert agent.ask("stop", program=7, because="time limit of 5 s") == {"id": 1}
    _, event = agent.until_ended()
    assert (event["exit_status"], event["stopped_because"]) == (-signal.SIGTERM, "time limit of 5 s")
    assert agent.ask("output", program=7)["error"] == "the program has ended"


def test_signals_reach_a_program(agent: Agent) -> None:
    agent.start("sleep", "1000")
    agent.ask("signal", program=7, number=int(signal.SIGUSR1))
    assert agent.until_ended()[1]["exit_status"] == -signal.SIGUSR1


def test_a_port_is_waited_for(agent: Agent) -> None:
    (port,) = agent.ask("free-ports", first=18000, ports=12000, count=1)["found"]
    listen = f"import socket, time; s = socket.create_server(('', {port})); time.sleep(1000)"
    agent.start(sys.executable, "-c", listen)
    waiting = {"program": 7, "port": port, "protocol": "tcp"}
    assert agent.ask("await-port", timeout_s=LIMIT_S, **waiting)["state"] == "open"
    assert agent.ask("is-listening", port=port, protocol="tcp")["listening"]
    assert agent.ask("await-port", timeout_s=0.01, program=7, port=port, protocol="udp")["state"] == "late"
    agent.ask("stop", program=7, because="")
    agent.until_ended()
    assert agent.ask("await-port", timeout_s=LIMIT_S, **waiting)["state"] == "ended"


def test_ports_that_others_have_are_not_given(agent: Agent) -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        found = agent.ask("free-ports", first=port - 1, ports=3, count=2)
        assert port not in found.get("found", [])
        assert "only" in agent.ask("free-ports", first=port, ports=1, count=1)["error"]


def test_files_are_written_to_the_folder_of_the_run(agent: Agent, tmp_path: Path) -> None:
    for piece in (b"#!/bin/sh\n", b"echo here\n"):
        data = base64.b64encode(piece).decode()
        place = agent.ask("write", name="bin/x", data=data, mode=0o755)["path"]
    assert Path(place).is_relative_to(tmp_path)
    agent.start(place)
    assert agent.until_ended()[0]["stdout"] == "here\n"


@pytest.mark.skipif(os.getuid() == 0 and not Path("/dev/full").exists(), reason="there is no full device here")
def test_a_full_disk_is_named(agent: Agent) -> None:
    folder = Path(agent.hello["folder"])
    (folder / "full").symlink_to("/dev/full")
    answer = agent.ask("write", name="full", data=base64.b64encode(b"x" * 100).decode(), mode=0o644)
    assert "No space left on device" in answer["error"]
    assert agent.ask("alive")["time_s"] > 0


def test_a_host_without_a_folder_for_temporary_files_says_so(agents: Callable[..., Agent]) -> None:
    nowhere = 'import tempfile; tempfile._candidate_tempdir_list = lambda: ["/proc/no"]; '
    hello = agents(nowhere).hello
    assert hello["event"] == "refusal"
    assert hello["error"].startswith("No usable temporary directory found in ['/proc/no']. Let TMPDIR name a folder")


def test_nothing_is_left_when_the_connection_ends(agent: Agent, tmp_path: Path) -> None:
    pid = agent.start("sh", "-c", "sleep 1000 & setsid sleep 1000 & exec sleep 1000")["started"]
    children = psutil.Process(pid).parent()
    assert children is not None
    family = [each.pid for each in children.children(recursive=True)]
    agent.close()
    assert all(gone(each) for each in family)
    assert not [*tmp_path.iterdir()]


def test_nothing_is_left_when_rocelab_falls_silent(agents: Callable[..., Agent], tmp_path: Path) -> None:
    before = "from rocelab.hosts import agent; agent.SILENCE_MAX_S = 0.2; "
    silent = agents(before)
    pid = silent.start("sleep", "1000")["started"]
    assert silent.process.wait(LIMIT_S) == 0
    assert gone(pid)
    assert not [*tmp_path.iterdir()]


def test_hosts_of_a_run_have_a_common_name_for_its_folder(agents: Callable[..., Agent], tmp_path: Path) -> None:
    """These two share a file system: the first has it."""
    first, second = agents(), agents()
    places = [each.ask("name-folder", name="abcd")["path"] for each in (first, second)]
    assert places == [str(tmp_path / f"{COMMON_PREFIX}abcd")] * 2
    assert Path(places[0]).resolve() == Path(first.hello["folder"])
    second.close()
    assert Path(places[0]).exists()
    first.close()
    assert not [*tmp_path.iterdir()]


def test_a_common_name_of_a_killed_agent_goes_with_the_next_run(agents: Callable[..., Agent], tmp_path: Path) -> None:
    killed = agents()
    killed.ask("name-folder", name="abcd")
    killed.process.kill()
    killed.process.wait()
    following = agents()
    agents().close()
    assert [str(path) for path in tmp_path.iterdir()] == [following.hello["folder"]]
    following.close()


def test_programs_end_with_a_killed_agent_and_the_next_tidies_up(agents: Callable[..., Agent], tmp_path: Path) -> None:
    killed = agents()
    pid = killed.start("sleep", "1000")["started"]
    killed.process.kill()
    killed.process.wait()
    assert gone(pid)
    (left,) = tmp_path.glob(f"{FOLDER_PREFIX}*")
    following = agents()
    assert [str(path) for path in tmp_path.iterdir()] == [following.hello["folder"]] != [str(left)]
    # An agent that still runs keeps its folder.
    third = agents()
    assert len([*tmp_path.iterdir()]) == 2
    third.close()
    following.close()


def test_folders_that_others_made_are_left_alone(agents: Callable[..., Agent], tmp_path: Path) -> None:
    """A link that has the name of a folder, and one in a folder that is ours in place of the lock."""
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "lock").touch()
    (tmp_path / f"{FOLDER_PREFIX}link").symlink_to(kept)
    inside = tmp_path / f"{FOLDER_PREFIX}inside"
    inside.mkdir()
    (inside / "lock").symlink_to(kept / "lock")
    agents().close()
    assert (kept / "lock").exists()
    assert inside.exists()


def test_an_agent_that_fails_says_why(agents: Callable[..., Agent], capfd: pytest.CaptureFixture[str]) -> None:
    failing = agents()
    failing.write(b'{"id": 1, "op": "dance"}\n')
    failing.process.wait(LIMIT_S)
    assert "KeyError: 'dance'" in capfd.readouterr().err


def test_an_old_python_is_told_what_is_needed(tmp_path: Path) -> None:
    line = bundle.first_line().decode().replace("sys.version_info >= (3, 9)", "sys.version_info >= (99, 0)")
    done = subprocess.run(
        ["sh", "-c", bundle.command(sys.executable)],
        input=line,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 1
    assert "3.9 or newer is needed" in done.stderr
