"""`pytest --rdma` and its fixture, in a pytest of their own, with the urxe that rocelab uses."""

from __future__ import annotations

import shutil
import textwrap

import pytest

from rocelab.tools import interconnects

pytest_plugins = ("pytester",)

DEVICES = """
    import subprocess

    def test_devices():
        print(subprocess.run(["ibv_devices"], capture_output=True, text=True).stdout)
        assert False
"""
PINGPONG = """
    def test_pingpong(rdma_nodes):
        server, client = rdma_nodes
        serves = server.start("ibv_rc_pingpong", "-d", server.device, "-g", server.gid_index, "-n", 10)
        for _ in range(100):
            done = client.run("ibv_rc_pingpong", "-d", client.device, "-g", client.gid_index, "-n", 10, server.address,
                check=False)
            if done.returncode == 0 or serves.poll() is not None:
                break
        print(done.stdout)
        assert done.returncode == 0
        assert serves.wait(30) == 0
"""


@pytest.fixture(autouse=True)
def _urxe(monkeypatch: pytest.MonkeyPatch) -> None:
    urxe = interconnects.urxe().path
    if urxe is None:
        pytest.skip("SKIPPED: urxe is not built (make build)")
    monkeypatch.setenv("ROCELAB_URXE", urxe)


def needs(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"SKIPPED: {program} is missing (apt-get install ibverbs-utils)")


def test_all_tests_have_the_device_with_the_option(pytester: pytest.Pytester) -> None:
    needs("ibv_devices")
    pytester.makepyfile(textwrap.dedent(DEVICES))
    with_it = pytester.runpytest_subprocess("--rdma")
    with_it.stdout.fnmatch_lines(["rdma: urxe, *liburxe.so", "*urxe_lo*"])
    without = pytester.runpytest_subprocess()
    without.stdout.no_fnmatch_line("*urxe_lo*")


@pytest.mark.parametrize("options", [(), ("--rdma",)])
def test_two_ends_talk_to_each_other_with_and_without_the_option(
    pytester: pytest.Pytester, options: tuple[str, ...]
) -> None:
    needs("ibv_rc_pingpong")
    pytester.makepyfile(textwrap.dedent(PINGPONG))
    pytester.runpytest_subprocess(*options).assert_outcomes(passed=1)


def test_what_a_test_left_running_ends_with_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        textwrap.dedent("""
        started = []

        def test_leaves_one(rdma_nodes):
            started.append(rdma_nodes[0].start("sleep", 1000))
            assert started[0].poll() is None

        def test_it_has_ended():
            assert started[0].poll() == -9
        """)
    )
    pytester.runpytest_subprocess().assert_outcomes(passed=2)


def test_without_the_command_it_says_what_to_do(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCELAB_URXE", "/nonexistent/urxe")
    pytester.makepyfile("def test_nothing(): pass")
    done = pytester.runpytest_subprocess("--rdma")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["*--rdma: /nonexistent/urxe, which $ROCELAB_URXE names, is not there: install*"])
