"""What goes wrong with hosts while a study runs on them, and what becomes of the run."""

from __future__ import annotations

import shutil
import signal
import sys
import time
from pathlib import Path

import pytest

from rocelab.cli.tests.on_hosts import ROCELAB, STUDY, Run, samples_in
from rocelab.fabric.base import Running
from rocelab.hosts.agent import COMMON_PREFIX, FOLDER_PREFIX
from rocelab.hosts.tests.cluster import SshCluster
from rocelab.results import list_runs
from rocelab.tools import interconnects, sock

pytestmark = pytest.mark.fabric

LIMIT_S = 120.0


def begun(cluster: SshCluster, hosts: Path, study: Path, results: Path) -> Running:
    """A run that has measured something."""
    words = ["run", "--fabric", "hosts", "--hosts", str(hosts), str(study), "--results", str(results), "--no-report"]
    running = cluster.launcher.start(cluster.fabric.nodes[0], [*ROCELAB, *words])
    deadline_s = time.monotonic() + LIMIT_S
    while len([*samples_in(results)]) < 2:
        assert time.monotonic() < deadline_s, running.output()
        assert running.poll() is None, running.output()
        time.sleep(0.05)
    return running


def folders() -> set[Path]:
    """What agents have on hosts, which share the temporary folder of this machine."""
    return {path for prefix in (FOLDER_PREFIX, COMMON_PREFIX) for path in Path("/tmp").glob(f"{prefix}*")}


def test_ctrl_c_ends_everything_on_all_hosts(cluster: SshCluster, study: Path, tmp_path: Path) -> None:
    study.write_text(STUDY.replace("repetitions = 2", "repetitions = 300"))
    before = folders()
    running = begun(cluster, cluster.hosts_toml(name="inside"), study, tmp_path / "results")
    assert folders() - before
    running.signal(signal.SIGINT)
    done = running.wait(LIMIT_S)
    assert done.exit_status == 130, done.stderr
    assert "Interrupted. " in done.stderr
    assert "rocelab run --resume" in done.stderr
    deadline_s = time.monotonic() + LIMIT_S
    while folders() - before:
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    (store,) = list_runs(tmp_path / "results")
    assert store.info.status == "interrupted"
    assert store.done_keys()


def test_a_program_that_hangs_on_a_host_is_stopped_and_named(
    rocelab: Run, cluster: SshCluster, study: Path, tmp_path: Path
) -> None:
    # It says its version, for which a run waits longer than for a measurement.
    hanging = script(tmp_path / "rocelab-sock", '[ "$1" = --version ] || exec sleep 1000\n')
    text = STUDY.replace("repetitions = 2", "repetitions = 1\ntime_limit_s = 1")
    study.write_text(text)
    hosts = cluster.hosts_toml(f'[programs]\nrocelab-sock = "{hanging}"', name="inside")
    kept = ("--results", tmp_path / "results", "--no-report")
    done = rocelab("run", "--fabric", "hosts", "--hosts", hosts, study, *kept)
    assert done.exit_status == 3, done.stderr
    samples = [*samples_in(tmp_path / "results")]
    failed = [each for each in samples if not each.ok]
    assert {each.interconnect for each in failed} == {"tcp"}
    assert all("node1: nothing listened on tcp port" in str(each.error) for each in failed)
    assert any(each.ok for each in samples if each.interconnect == "soft-roce")


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}")
    path.chmod(0o755)
    return path


def test_a_host_whose_clock_is_wrong_is_named(rocelab: Run, cluster: SshCluster, tmp_path: Path) -> None:
    ahead = "import time; real = time.time; time.time = lambda: real() + 7200; "
    words = f'[ "$(hostname)" = node1 ] && exec {sys.executable} -I -c "{ahead}$3"\nexec {sys.executable} "$@"\n'
    python = script(tmp_path / "python", words)
    hosts = cluster.hosts_toml(f'python = "{python}"', name="inside")
    checked = rocelab("hosts", "check", hosts)
    assert checked.exit_status == 3
    assert "node1: its clock is 7200 s ahead of this machine's" in checked.stdout


def test_a_host_with_another_version_of_a_program_is_named(
    rocelab: Run, cluster: SshCluster, study: Path, tmp_path: Path
) -> None:
    older = '[ "$(hostname)$1" = node1--version ] && echo rocelab-sock 0.9 && exit\n'
    program = script(tmp_path / "rocelab-sock", f'{older}exec {sock.program().name} "$@"\n')
    hosts = cluster.hosts_toml(f'[programs]\nrocelab-sock = "{program}"', name="inside")
    checked = rocelab("hosts", "check", hosts)
    built = interconnects.version(sock.program())
    named = f"node1: rocelab-sock: rocelab-sock 0.9, where the 2 others have rocelab-sock {built}"
    assert named in checked.stdout
    kept = ("--results", tmp_path / "results", "--no-report")
    done = rocelab("run", "--fabric", "hosts", "--hosts", hosts, study, *kept)
    assert done.exit_status == 0, done.stderr
    (store,) = list_runs(tmp_path / "results")
    assert any("rocelab-sock 0.9" in note for note in store.info.provenance.notes)


def test_runs_of_two_people_on_the_same_hosts_do_not_meet(cluster: SshCluster, study: Path, tmp_path: Path) -> None:
    study.write_text(STUDY.replace("repetitions = 2", "repetitions = 5"))
    hosts = cluster.hosts_toml(name="inside")
    results = [tmp_path / "one", tmp_path / "other"]
    both = [begun(cluster, hosts, study, each) for each in results]
    ends = [each.wait(2 * LIMIT_S) for each in both]
    assert [end.exit_status for end in ends] == [0, 0], [end.stderr for end in ends]
    for each in results:
        assert all(sample.ok for sample in samples_in(each))


def test_a_firewall_between_hosts_is_named_with_the_port(
    rocelab: Run, cluster: SshCluster, study: Path, tmp_path: Path
) -> None:
    if shutil.which("nft") is None:
        pytest.skip("nft is not installed: apt-get install nftables")
    node = cluster.fabric.nodes[1]

    def nft(*words: str) -> None:
        done = cluster.launcher.start(node, ["nft", *words]).wait(30)
        if done.exit_status != 0:
            pytest.skip(f"no firewall can be made here: {done.stderr.strip()}")

    nft("add", "table", "inet", "wall")
    nft("add", "chain", "inet", "wall", "in", "{ type filter hook input priority 0 ; }")
    nft("add", "rule", "inet", "wall", "in", "tcp", "dport", "18000-29999", "drop")
    try:
        hosts = cluster.hosts_toml(name="inside")
        checked = rocelab("hosts", "check", hosts)
        assert checked.exit_status == 3
        assert "firewall" in checked.stdout
        study.write_text(STUDY.replace("repetitions = 2", "repetitions = 1\ntime_limit_s = 1"))
        kept = ("--results", tmp_path / "results", "--no-report")
        done = rocelab("run", "--fabric", "hosts", "--hosts", hosts, study, *kept)
        assert done.exit_status == 3, done.stderr
        assert all(not each.ok for each in samples_in(tmp_path / "results") if each.interconnect == "tcp")
    finally:
        nft("delete", "table", "inet", "wall")
