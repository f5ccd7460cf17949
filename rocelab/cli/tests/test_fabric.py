"""`rocelab fabric`, as a person types it."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rocelab.cli.fabric import app, parse_link
from rocelab.fabric import emulated, records
from rocelab.fabric.base import FabricError, LinkProfile

COMMAND = [sys.executable, "-c", "from rocelab.cli.fabric import app; app(prog_name='rocelab fabric')"]


@pytest.fixture
def runtime(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("xdg")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    monkeypatch.setenv("COLUMNS", "200")
    return folder


@pytest.fixture
def lab(runtime: Path) -> Iterator[str]:
    """A fabric with a name of this test's own, made by one command and removed by another."""
    name = f"test-{os.getpid()}"
    made = run("up", name)
    if made.returncode == 1 and "cannot make an emulated fabric" in made.stderr:
        pytest.skip(f"no emulated fabric on this machine: {made.stderr}")
    assert made.returncode == 0, made.stderr
    assert f"rocelab fabric exec {name} node0" in made.stdout
    yield name
    if records.find(name) is not None:
        assert run("down", name).returncode == 0


def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], input=stdin, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.fabric
def test_exec_is_the_command_on_the_node(lab: str) -> None:
    done = run("exec", lab, "node1", "--", "sh", "-c", "uname -n; cat; echo oops >&2; exit 5", stdin="from here\n")
    assert (done.returncode, done.stdout, done.stderr) == (5, "node1\nfrom here\n", "oops\n")
    assert run("exec", lab, "node0", "--", "sh", "-c", "kill -9 $$").returncode == 137
    cpu = str(max(os.sched_getaffinity(0)))
    pinned = run(
        "exec", "--cpu", cpu, lab, "node0", "--", sys.executable, "-c", "import os; print(os.sched_getaffinity(0))"
    )
    assert pinned.stdout == f"{{{cpu}}}\n"


@pytest.mark.fabric
def test_exec_in_a_terminal_has_one_on_the_node(lab: str) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(COMMAND[0], [*COMMAND, "exec", lab, "node0", "--", "sh"])
    try:
        # An interactive shell survives Ctrl-C, so it makes way for a program that does not. What
        # this prints differs from what is typed, which the terminal shows too, and says that it
        # runs: a shell that is about to start a program keeps a Ctrl-C until that has ended.
        os.write(terminal, b"tty; uname -n; exec tr a-z A-Z\nready\n")
        read_until(terminal, rb"/dev/pts/\d+\r\n(.*\r\n)*node0\r\n(.*\r\n)*READY\r\n")
        os.write(terminal, b"\x03")  # Ctrl-C reaches the program, not us
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 130
    finally:
        os.close(terminal)


def read_until(terminal: int, pattern: bytes) -> bytes:
    seen, deadline_s = b"", time.monotonic() + 20
    while not re.search(pattern, seen):
        assert time.monotonic() < deadline_s, seen
        if select.select([terminal], [], [], 0.2)[0]:
            seen += os.read(terminal, 4096)
    return seen


@pytest.mark.fabric
def test_ending_exec_ends_the_command(lab: str) -> None:
    def sleeping() -> bool:
        return "sleep\n" in run("exec", lab, "node0", "--", "sh", "-c", "cat /proc/[0-9]*/comm").stdout

    with subprocess.Popen([*COMMAND, "exec", lab, "node0", "--", "sleep", "1000"]) as executing:
        try:
            wait_until(sleeping)
        finally:
            executing.kill()
        wait_until(lambda: not sleeping())


def wait_until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


@pytest.mark.fabric
def test_list_shows_what_is_up_what_is_dead_and_what_is_in_use(lab: str, runtime: Path) -> None:
    with emulated.up([LinkProfile("direct", "direct")]) as of_this_test:
        lines = {line.split()[0]: line for line in run("list").stdout.splitlines()}
        assert re.search(
            r" up +2 +direct \(direct, MTU 1500\), ethernet-1g \(bridge, MTU 1500, 1000 Mbps\)", lines[lab]
        )
        assert f"in use by process {os.getpid()}" in lines[of_this_test.name]
        listed = {one["name"]: one for one in json.loads(run("list", "--json").stdout)}
        assert listed[lab]["nodes"][1]["addresses"] == {"direct": "10.80.0.2", "ethernet-1g": "10.80.1.2"}
        assert listed[of_this_test.name]["owner_pid"] == os.getpid()
    os.kill(listed[lab]["pid"], 9)
    wait_until(lambda: not records.get(lab).alive)
    assert " dead " in run("list").stdout
    refused = run("exec", lab, "node0", "--", "true")
    assert refused.returncode == 1
    assert f"fabric {lab} has ended; remove its record with: rocelab fabric down {lab}" in refused.stderr


@pytest.mark.fabric
def test_a_node_sees_and_reaches_its_fabric_and_cannot_remove_it(lab: str, runtime: Path) -> None:
    def on_the_node(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run("exec", lab, "node0", "--", *COMMAND, *arguments)

    assert [one["state"] for one in json.loads(on_the_node("list", "--json").stdout) if one["name"] == lab] == ["up"]
    assert on_the_node("exec", lab, "node1", "--", "uname", "-n").stdout == "node1\n"
    refused = on_the_node("down", lab)
    assert refused.returncode == 1
    assert f"fabric {lab} was made elsewhere (on the host, if this is a node or a container)" in refused.stderr
    assert f"Left {lab} alone: it was made elsewhere" in on_the_node("down", "--all").stdout
    assert records.get(lab).alive
    os.kill(records.get(lab).keeper.pid, 9)
    wait_until(lambda: not records.get(lab).alive)


@pytest.mark.fabric
def test_a_dead_fabric_of_another_namespace_can_be_forgotten(lab: str, runtime: Path) -> None:
    (path,) = runtime.rglob("*.json")
    os.kill(records.get(lab).keeper.pid, 9)
    wait_until(lambda: not records.get(lab).alive)
    path.write_text(path.read_text().replace(records.get(lab).pid_namespace, "pid:[1]"))
    assert records.get(lab).elsewhere
    assert " dead " in run("list").stdout
    assert run("down", lab).returncode == 0
    assert records.find(lab) is None


@pytest.mark.fabric
def test_down_all_removes_everything_but_what_is_in_use(lab: str, runtime: Path) -> None:
    with emulated.up([LinkProfile("direct", "direct")]) as of_this_test:
        done = run("down", "--all")
        assert done.returncode == 0, done.stderr
        assert f"Removed fabric {lab}." in done.stdout
        assert f"Left {of_this_test.name} alone: process {os.getpid()} is using it." in done.stdout
    assert lab not in run("list").stdout
    assert not list(runtime.rglob("*.json"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["exec", "nowhere", "node0", "--", "true"], "rocelab fabric exec: there is no fabric 'nowhere'"),
        (["down", "nowhere"], "there is no fabric 'nowhere'"),
        (["down"], "say which fabrics to remove, or --all"),
        (
            ["up", "x", "--link", "a=ring"],
            "--link a=ring: a link is ID=KIND[,KEY=VALUE...], and KIND is direct, bridge or two-level",
        ),
        (
            ["up", "x", "--link", "a=bridge,rate=5"],
            "'rate' is not known; the keys are mtu_bytes, rate_mbps, queue_bytes",
        ),
        (["up", "x", "--link", "a=bridge,mtu_bytes=big"], "mtu_bytes needs a number, not 'big'"),
        (["up", "x", "--nodes", "1", "--link", "a=direct"], "a direct link joins the first two nodes"),
        (["up", "../x"], "'../x' cannot be the name of a fabric"),
    ],
)
def test_mistakes_are_answered_with_what_is_allowed(runtime: Path, arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1
    assert words in result.stderr


def test_a_link_is_read_from_its_short_form() -> None:
    assert parse_link("a=direct") == LinkProfile("a", "direct")
    assert parse_link("lan=bridge,rate_mbps=2500.5,mtu_bytes=9000") == LinkProfile("lan", "bridge", 9000, 2500.5)
    racks = LinkProfile("racks", "two-level", rate_mbps=100, nodes_per_switch=8, uplink_rate_mbps=800)
    assert parse_link("racks=two-level,rate_mbps=100,nodes_per_switch=8,uplink_rate_mbps=800") == racks
    with pytest.raises(FabricError):
        parse_link("lan")
