"""Programs on the nodes of a real fabric: output, CPU time, limits, and what people are told."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from rocelab.fabric import emulated
from rocelab.fabric.base import LaunchError, LinkProfile, Node
from rocelab.launch import namespace
from rocelab.launch.fake import FakeFabric
from rocelab.launch.namespace import NamespaceLauncher

pytestmark = pytest.mark.fabric

BURN = "import time\nwhile time.process_time() < {seconds}: sum(range(5000))\n"


@pytest.fixture
def launcher(fabric: emulated.EmulatedFabric) -> NamespaceLauncher:
    return NamespaceLauncher(fabric)


@pytest.fixture
def node(fabric: emulated.EmulatedFabric) -> Node:
    return fabric.nodes[0]


def programs_on(launcher: NamespaceLauncher, node: Node) -> list[str]:
    """What runs on the node besides its keepers and this look at it."""
    listing = launcher.start(node, ["sh", "-c", "cat /proc/[0-9]*/comm"]).wait(60).stdout.split("\n")
    return [name for name in listing if name and not name.startswith("rocelab") and name not in ("sh", "cat")]


def test_output_and_exit_status_are_those_of_the_program(launcher: NamespaceLauncher, node: Node) -> None:
    finished = launcher.start(node, ["sh", "-c", "echo out; echo err >&2; exit 7"]).wait(60)
    assert (finished.exit_status, finished.stdout, finished.stderr) == (7, "out\n", "err\n")
    assert not finished.timed_out
    assert finished.stopped_because is None
    assert 0 < finished.wall_s < 60


def test_a_signal_is_a_negative_exit_status(launcher: NamespaceLauncher, node: Node) -> None:
    assert launcher.start(node, ["sh", "-c", "kill -SEGV $$"]).wait(60).exit_status == -11


@pytest.mark.parametrize("flag_of_kernel", [True, False])
def test_a_signal_reaches_the_program_and_what_it_started(
    launcher: NamespaceLauncher, node: Node, monkeypatch: pytest.MonkeyPatch, *, flag_of_kernel: bool
) -> None:
    if not flag_of_kernel:
        monkeypatch.setattr(namespace, "_PIDFD_SIGNAL_PROCESS_GROUP", 1 << 30)
    child = "trap 'echo child; exit' USR1; echo ready; while :; do sleep 0.01; done"
    code = f"trap 'wait; echo parent; exit 3' USR1; ({child}) & wait"
    running = launcher.start(node, ["sh", "-c", code])
    while "ready" not in running.output()[0]:
        time.sleep(0.01)
    running.signal(signal.SIGUSR1)
    finished = running.wait(60)
    assert (finished.exit_status, sorted(finished.stdout.split())) == (3, ["child", "parent", "ready"])
    running.signal(signal.SIGUSR1)  # no process is there


def test_a_program_sees_the_callers_folder_and_environment(
    launcher: NamespaceLauncher, node: Node, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FROM_HERE", "kept")
    monkeypatch.setenv("CHANGED", "before")
    command = "pwd; echo $FROM_HERE $CHANGED $ADDED $HOSTNAME; cat /proc/self/stat | cut -d' ' -f4 >/dev/null"
    finished = launcher.start(node, ["sh", "-c", command], env={"CHANGED": "after", "ADDED": "yes"}).wait(60)
    assert finished.stdout.splitlines() == [str(tmp_path), "kept after yes node0"]


def test_standard_input_is_empty_and_no_file_is_inherited(launcher: NamespaceLauncher, node: Node) -> None:
    code = "import os,sys; print(repr(sys.stdin.read()), sorted(int(f) for f in os.listdir('/proc/self/fd')))"
    finished = launcher.start(node, [sys.executable, "-c", code]).wait(60)
    assert finished.stdout == "'' [0, 1, 2, 3]\n"  # 3 is the directory being listed


@pytest.mark.parametrize("core", sorted(os.sched_getaffinity(0)))
def test_a_program_is_pinned_to_its_core(launcher: NamespaceLauncher, node: Node, core: int) -> None:
    code = "import os; print(os.sched_getaffinity(0))"
    finished = launcher.start(node, [sys.executable, "-c", code], cores=[core]).wait(60)
    assert finished.stdout == f"{{{core}}}\n"


def test_nodes_have_cores_of_their_own_while_there_are_enough(
    launcher: NamespaceLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {1, 2, 5})
    nodes = FakeFabric((LinkProfile("a", "bridge"),), 4).nodes
    assert [launcher.core(node, "a") for node in nodes] == [1, 2, 5, 1]
    assert [launcher.own_cores(node, nodes[:2]) for node in nodes[:2]] == [[1], [2]]
    assert launcher.own_cores(nodes[0], nodes) == []


def test_processors_of_nodes_are_apart_or_too_few(launcher: NamespaceLauncher, monkeypatch: pytest.MonkeyPatch) -> None:
    # None of these is in any machine, so each is a core of its own.
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {90_001, 90_002, 90_005, 90_006, 90_007})
    nodes = FakeFabric((LinkProfile("a", "bridge"),), 2).nodes
    assert launcher.separate_cores(nodes, 2) == [[90_001, 90_005], [90_002, 90_006]]
    with pytest.raises(LaunchError, match="5 processors may be used here, and 6 are needed"):
        launcher.separate_cores(nodes, 3)


def test_ports_are_given_again_only_after_all_others(launcher: NamespaceLauncher, node: Node) -> None:
    seen: set[int] = set()
    for _ in range(1000):
        ports = set(launcher.free_ports(node, 12))
        assert len(ports) == 12
        assert not ports & seen
        seen |= ports
    assert max(seen) < 32768  # where the ports of clients begin
    assert set(launcher.free_ports(node, 12)) <= seen


def test_cpu_seconds_are_those_of_each_end_and_what_it_started(
    launcher: NamespaceLauncher, fabric: emulated.EmulatedFabric
) -> None:
    child, orphan = BURN.format(seconds=0.2), BURN.format(seconds=0.3)
    # The orphan's parent is gone before it ends, and it is in a session of its own.
    busy = f"import subprocess,sys\nsubprocess.Popen([sys.executable,'-c',{orphan!r}],start_new_session=True)\n{child}"
    shell = ["sh", "-c", '"$0" -c "$1" & wait; "$0" -c "$2"; sleep 1', sys.executable, busy, BURN.format(seconds=0.1)]
    both = [launcher.start(fabric.nodes[0], shell), launcher.start(fabric.nodes[1], ["sleep", "0.2"])]
    loaded, idle = (running.wait(60) for running in both)
    assert loaded.exit_status == 0
    assert 0.6 <= loaded.cpu_s < 1.2
    assert loaded.cpu_user_s > loaded.cpu_system_s
    assert idle.cpu_s < 0.05


def test_system_time_is_told_apart_from_user_time(launcher: NamespaceLauncher, node: Node) -> None:
    code = "import os,time\nf=os.open('/dev/zero',os.O_RDONLY)\nwhile time.process_time() < 0.3: os.read(f, 1 << 20)"
    finished = launcher.start(node, [sys.executable, "-c", code]).wait(60)
    assert finished.cpu_system_s > finished.cpu_user_s


def test_time_limit_ends_a_program_with_its_grandchildren(launcher: NamespaceLauncher, node: Node) -> None:
    script = "echo begun; setsid sh -c 'trap \"\" TERM HUP; sleep 100 & sleep 100' & sleep 100"
    started_s = time.monotonic()
    running = launcher.start(node, ["sh", "-c", script])
    while "begun" not in running.output()[0]:
        time.sleep(0.01)
    finished = running.wait(0.5)
    assert finished.timed_out
    assert finished.stopped_because == "time limit of 0.5 s"
    assert finished.stdout == "begun\n"
    assert finished.exit_status == -15
    assert time.monotonic() - started_s < 60
    assert "sleep" not in programs_on(launcher, node)


def test_a_family_that_keeps_forking_is_ended(launcher: NamespaceLauncher, node: Node) -> None:
    code = (
        "import os,signal,time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "for generation in range(2000):\n"  # each child replaces its parent, always orphaned anew
        "    if os.fork(): os._exit(0)\n"
        "    os.setsid(); time.sleep(0.005)\n"
    )
    script = f"import subprocess,sys,time\nsubprocess.Popen([sys.executable,'-c',{code!r}])\ntime.sleep(100)"
    finished = launcher.start(node, [sys.executable, "-c", script]).wait(0.5)
    assert finished.timed_out
    assert not any(name.startswith("python") for name in programs_on(launcher, node))


def test_what_a_program_leaves_running_ends_with_it(launcher: NamespaceLauncher, node: Node) -> None:
    finished = launcher.start(node, ["sh", "-c", "setsid sleep 100 & echo done"]).wait(60)
    assert finished.exit_status == 0
    assert finished.stdout == "done\n"
    assert "sleep" not in programs_on(launcher, node)


def test_stop_lets_a_program_tidy_up(launcher: NamespaceLauncher, node: Node) -> None:
    code = (
        "import signal,sys,time\n"
        "def tidy(*_): print('tidied', flush=True); sys.exit(3)\n"
        "signal.signal(signal.SIGTERM, tidy); print('ready', flush=True); time.sleep(100)\n"
    )
    running = launcher.start(node, [sys.executable, "-c", code])
    while "ready" not in running.output()[0]:
        time.sleep(0.01)
    assert running.poll() is None
    finished = running.stop()
    assert (finished.exit_status, finished.stdout) == (3, "ready\ntidied\n")
    assert finished.stopped_because == "stop was asked for"
    assert not finished.timed_out
    assert running.stop() is finished
    assert running.wait(1) is finished
    assert running.output() == ("ready\ntidied\n", "")


def test_endless_output_is_cut_off(launcher: NamespaceLauncher, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespace, "OUTPUT_BYTES_MAX", 1 << 20)
    finished = launcher.start(node, ["yes"]).wait(60)
    assert finished.stopped_because == "more than 1 MiB of output"
    assert not finished.timed_out
    assert len(finished.stdout) == 1 << 20


def test_losing_the_launcher_ends_the_program(launcher: NamespaceLauncher, node: Node) -> None:
    running = launcher.start(node, ["sleep", "1000"])
    running._release()  # what the kernel does when this process is killed
    deadline_s = time.monotonic() + 60
    while "sleep" in programs_on(launcher, node):
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def test_both_ends_share_a_log(launcher: NamespaceLauncher, fabric: emulated.EmulatedFabric, tmp_path: Path) -> None:
    log = tmp_path / "logs" / "one.log"
    for node in fabric.nodes:
        launcher.start(node, ["sh", "-c", "echo 'hello there'; uname -n >&2; exit 2"], log=log).wait(60)
    text = log.read_text(encoding="utf-8")
    assert text.count("--- stdout\nhello there\n") == 2
    assert "--- stderr\nnode0\n" in text
    assert "--- stderr\nnode1\n" in text
    assert "node1] $ sh -c 'echo '\"'\"'hello there'\"'\"'; uname -n >&2; exit 2'\n" in text
    assert text.count("--- exit status 2, ") == 2


def test_waiting_for_a_port(launcher: NamespaceLauncher, fabric: emulated.EmulatedFabric) -> None:
    server_node, other = fabric.nodes
    code = (
        "import socket,time; time.sleep(0.2)\n"
        "t=socket.create_server(('', 6001)); u=socket.socket(type=socket.SOCK_DGRAM); u.bind(('', 6002)); t.accept()"
    )
    server = launcher.start(server_node, [sys.executable, "-c", code])
    launcher.wait_until_listening(server_node, server, 6001)
    launcher.wait_until_listening(server_node, server, 6002, protocol="udp")
    with pytest.raises(LaunchError, match=r"node1: nothing listened on tcp port 6001 within 0\.1 s"):
        launcher.wait_until_listening(other, server, 6001, timeout_s=0.1)
    server.stop()


def test_a_server_that_ends_before_it_listens_shows_its_output(launcher: NamespaceLauncher, node: Node) -> None:
    server = launcher.start(node, ["sh", "-c", "echo 'cannot bind' >&2; exit 4"])
    with pytest.raises(LaunchError, match=r"ended \(exit status 4\) before it listened on tcp port 6003\ncannot bind"):
        launcher.wait_until_listening(node, server, 6003)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["no-such-program-here"], "node0: there is no program 'no-such-program-here'; `rocelab doctor` says"),
        (["/etc/hostname"], "node0: /etc/hostname is not executable for this user"),
        ([], "node0: no command was given"),
        (["true", "x" * 400_000], "of command line and environment, at most"),
    ],
)
def test_a_program_that_cannot_start_is_named(
    launcher: NamespaceLauncher, node: Node, argv: list[str], words: str
) -> None:
    with pytest.raises(LaunchError) as refused:
        launcher.start(node, argv)
    assert words in str(refused.value)


def test_a_core_or_directory_that_is_not_there_is_named(
    launcher: NamespaceLauncher, node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(LaunchError, match=r"core 4000 cannot be used; there are cores \d"):
        launcher.start(node, ["true"], cores=[4000])
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    monkeypatch.setattr(Path, "cwd", lambda: gone)
    gone.rmdir()
    with pytest.raises(LaunchError, match=r"the working directory .*gone cannot be entered: No such file"):
        launcher.start(node, ["true"])


def test_many_programs_at_once(launcher: NamespaceLauncher, fabric: emulated.EmulatedFabric) -> None:
    running = [launcher.start(fabric.nodes[i % 2], ["sh", "-c", f"sleep 0.1; echo {i}"]) for i in range(20)]
    assert [one.wait(60).stdout for one in running] == [f"{i}\n" for i in range(20)]
