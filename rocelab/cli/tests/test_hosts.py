"""``rocelab hosts`` and ``rocelab run --fabric hosts`` as a person calls them, over real sshd and in a real Slurm."""

from __future__ import annotations

import json
import re
import shutil
import time
from pathlib import Path

import pytest

from rocelab.cli.tests.on_hosts import LINK, ROCELAB, STUDY, Run, samples_in
from rocelab.cli.tests.test_own_programs import PROGRAM, check_qperf
from rocelab.cli.tests.test_own_programs import short as own_program
from rocelab.fabric.base import Finished
from rocelab.hosts.tests.cluster import SshCluster
from rocelab.hosts.tests.slurm import slurm_cluster
from rocelab.launch import mpi
from rocelab.results import list_runs

pytestmark = [pytest.mark.fabric, pytest.mark.usefixtures("can_run")]

MPI_STUDY = """\
schema = 1
id = "jobs"
title = "Jobs of MPI"
repetitions = 1

[[link]]
id = "direct"
kind = "direct"

[[test]]
level = "mpi"
test = "latency"
sizes_bytes = [8]
iterations = 100

[test.variants]
tcp = ["openmpi-ob1", "mpich-ofi"]
soft-roce = ["openmpi-ucx", "mpich-ucx"]
"""


def test_hosts_are_described_with_their_rails(rocelab: Run, cluster: SshCluster) -> None:
    done = rocelab("hosts", "check", cluster.hosts_toml(name="inside"))
    assert done.exit_status in (0, 3), done.stderr  # a busy machine is said to be wrong
    assert "node[0-2]: " in done.stdout
    assert "eth0: eth0, 10.80.0.1/24 and so on" in done.stdout
    found = json.loads(rocelab("hosts", "check", "--json", cluster.hosts_toml(name="inside")).stdout)
    assert found["rails"]["eth0"]["node1"]["address"] == "10.80.0.2"
    assert not [each for each in found["findings"] if "cannot be reached" in each["text"]]


def test_hosts_that_cannot_be_reached_are_named(rocelab: Run) -> None:
    done = rocelab("hosts", "check", "nowhere[1-2]")
    assert done.exit_status == 1
    assert "2 of 2 hosts cannot be used:\n  nowhere1 cannot be reached by ssh: " in done.stderr


def test_a_study_runs_on_hosts_unchanged_and_is_gone_on_with(
    rocelab: Run, cluster: SshCluster, study: Path, tmp_path: Path
) -> None:
    hosts = cluster.hosts_toml(name="inside")
    kept = ("--results", tmp_path / "results", "--no-report")
    done = rocelab("run", "--fabric", "hosts", "--hosts", hosts, study, *kept)
    assert done.exit_status == 0, done.stderr
    assert "kernel-poll) is not measured here: the interfaces of hosts are not changed" in done.stderr
    (store,) = list_runs(tmp_path / "results")
    assert (store.info.fabric, store.info.hosts) == ("hosts", str(hosts))
    assert [(link.id, link.kind) for link in store.info.links] == [("eth0", "rail")]
    samples = [*store.samples()]
    assert {(each.interconnect, each.variant, each.link) for each in samples} == {
        ("tcp", "blocking@default", "eth0"),
        ("soft-roce", "send", "eth0"),
    }
    assert all(each.ok for each in samples)
    assert any("others_cores" in each.params for each in samples)
    assert store.info.load is not None
    again = rocelab("run", "--resume", "latest", *kept)
    assert "is complete" in again.stderr, again.stderr


def test_a_program_that_hosts_lack_is_named_or_copied(
    rocelab: Run, cluster: SshCluster, study: Path, tmp_path: Path
) -> None:
    hosts = cluster.hosts_toml('[programs]\nrocelab-sock = "/no/such/rocelab-sock"', name="inside")
    words = ("run", "--fabric", "hosts", "--hosts", hosts, study, "--results", tmp_path / "results", "--no-report")
    done = rocelab(*words)
    assert done.exit_status == 1
    assert "rocelab-sock on node[0-2]: --stage copies this machine's for the time of the run" in done.stderr
    done = rocelab(*words, "--stage")
    assert done.exit_status == 0, done.stderr
    (store,) = list_runs(tmp_path / "results")
    (log,) = {each.log for each in store.samples() if each.interconnect == "tcp" and each.repetition == 0}
    assert re.search(r"/staged/[0-9]+/rocelab-sock ", (store.path / str(log)).read_text())


def test_a_run_goes_on_without_a_host_that_dies_in_the_middle(
    rocelab: Run, cluster: SshCluster, study: Path, tmp_path: Path
) -> None:
    study.write_text(STUDY.replace("repetitions = 2", "repetitions = 12"))
    hosts = cluster.hosts_toml(name="inside")
    kept = ("--results", str(tmp_path / "results"), "--no-report")
    words = [*ROCELAB, "run", "--fabric", "hosts", "--hosts", str(hosts), str(study), *kept]
    running = cluster.launcher.start(cluster.fabric.nodes[0], words)
    deadline_s = time.monotonic() + 60
    while not any((tmp_path / "results").glob("*/samples.ndjson")) or len([*samples_in(tmp_path / "results")]) < 2:
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    cluster.servers["node1"].stop()
    try:
        done = running.wait(240)
        assert done.exit_status == 3, done.stderr
        assert "node1 is lost: the connection by ssh has ended" in done.stderr
        errors = {each.error for each in samples_in(tmp_path / "results") if not each.ok}
        assert errors
        assert all("node1 is lost" in str(each) for each in errors)
        done = rocelab("run", "--resume", "latest", "--without", "node1", *kept)
        assert done.exit_status == 0, done.stderr
    finally:
        cluster.start_sshd("node1")
    (store,) = list_runs(tmp_path / "results")
    assert store.info.status == "complete"


def needs_mpi() -> None:
    for kind in mpi.KINDS:
        if not mpi.own(kind).mpiexec.exists():
            pytest.skip(f"there is no {mpi.own(kind).title}: {mpi.own(kind).remedy}")


def check_jobs(results: Path) -> None:
    found = {(each.interconnect, each.variant, each.ok) for each in samples_in(results)}
    assert found == {
        ("tcp", "openmpi-ob1@default", True),
        ("tcp", "mpich-ofi@default", True),
        ("soft-roce", "openmpi-ucx", True),
        ("soft-roce", "mpich-ucx", True),
    }


def test_jobs_of_both_mpis_start_on_all_hosts_by_ssh(
    rocelab: Run, cluster: SshCluster, study: Path, tmp_path: Path
) -> None:
    needs_mpi()
    study.write_text(MPI_STUDY)
    hosts = cluster.hosts_toml(name="inside")
    kept = ("--results", tmp_path / "results", "--no-report")
    done = rocelab("run", "--fabric", "hosts", "--hosts", hosts, study, *kept)
    assert done.exit_status == 0, done.stderr
    check_jobs(tmp_path / "results")


def test_a_program_of_ones_own_runs_on_hosts_from_the_same_file(
    rocelab: Run, cluster: SshCluster, tmp_path: Path
) -> None:
    needs_mpi()
    hosts = cluster.hosts_toml(name="inside")
    kept = ("--results", tmp_path / "results")
    done = rocelab("run", "--fabric", "hosts", "--hosts", hosts, own_program(tmp_path), *kept)
    assert done.exit_status == 0, done.stderr
    assert "jacobi.64" in done.stdout
    found = {(each.interconnect, each.test, each.fabric) for each in samples_in(tmp_path / "results")}
    assert found == {("tcp", "jacobi.64", "hosts"), ("soft-roce", "jacobi.64", "hosts")}


def test_a_server_and_a_client_of_ones_own_run_on_two_hosts(rocelab: Run, cluster: SshCluster, tmp_path: Path) -> None:
    if shutil.which("qperf") is None:
        pytest.skip("qperf is missing: apt-get install qperf")
    hosts = cluster.hosts_toml(name="inside")
    kept = ("--results", tmp_path / "results", "--no-report")
    done = rocelab("run", "--fabric", "hosts", "--hosts", hosts, PROGRAM / "qperf.toml", *kept)
    assert done.exit_status == 0, done.stderr
    check_qperf([*samples_in(tmp_path / "results")])


ACCEPTANCE = """\
schema = 1
study = "{study}"

[[threshold]]
test = "bandwidth"
at_least = 0.001

[[threshold]]
test = "bandwidth"
interconnect = "tcp"
at_least = 1e12
"""


def check_acceptance(done: Finished, folder: Path) -> None:
    assert done.exit_status == 3, done.stderr
    assert "tcp blocking@default bandwidth 64 KiB: " in done.stdout
    assert "wanted: at least " in done.stdout
    assert "Not accepted: 2 of 3 checks passed" in done.stdout
    assert "<failure" in (folder / "junit.xml").read_text()


def acceptance(study: Path, folder: Path) -> list[str]:
    """The words of a command that accepts one threshold of two."""
    path = folder / "site.toml"
    path.write_text(ACCEPTANCE.format(study=study))
    return ["accept", str(path), "--results", str(folder / "accepted"), "--junit", str(folder / "junit.xml")]


def test_hosts_are_held_against_thresholds(rocelab: Run, cluster: SshCluster, study: Path, tmp_path: Path) -> None:
    words = acceptance(study, tmp_path)
    hosts = cluster.hosts_toml(name="inside")
    criteria = Path(words[1])
    criteria.write_text(criteria.read_text().replace("\n[[", f'hosts = "{hosts}"\n\n[[', 1))
    check_acceptance(rocelab(*words), tmp_path)


def test_all_pairs_of_hosts_are_measured(rocelab: Run, cluster: SshCluster, study: Path, tmp_path: Path) -> None:
    study.write_text(
        'schema = 1\nid = "pairs"\ntitle = "Pairs"\nrepetitions = 1\n[[link]]\nid = "any"\nkind = "bridge"\n'
        '[[test]]\nlevel = "pairs"\ntest = "latency"\npoint_ms = 5\n'
        '[test.variants]\ntcp = ["blocking"]\nsoft-roce = ["send"]\n'
    )
    hosts = cluster.hosts_toml(name="inside")
    done = rocelab("run", "--fabric", "hosts", "--hosts", hosts, study, "--results", tmp_path / "results")
    assert done.exit_status == 0, done.stderr
    assert "3 pairs of 3 nodes" in done.stdout
    pairs = {
        (each.interconnect, each.params["client"], each.params["server"]) for each in samples_in(tmp_path / "results")
    }
    expected = [("node0", "node1"), ("node0", "node2"), ("node1", "node2")]
    assert pairs == {(name, *pair) for name in ("tcp", "soft-roce") for pair in expected}


def test_an_allocation_of_slurm_is_the_fabric(study: Path, tmp_path: Path) -> None:
    folder = tmp_path / "slurm"
    folder.mkdir()
    jobs = tmp_path / "jobs.toml"
    jobs.write_text(MPI_STUDY)
    with slurm_cluster(folder, [LINK], 2) as cluster:
        checked = cluster.salloc([*ROCELAB, "hosts", "check"])
        kept = ["--results", str(tmp_path / "results"), "--no-report"]
        done = cluster.salloc([*ROCELAB, "run", "--fabric", "hosts", str(study), *kept])
        kept = ["--results", str(tmp_path / "jobs"), "--no-report"]
        done_jobs = cluster.salloc([*ROCELAB, "run", "--fabric", "hosts", str(jobs), *kept])
        accepted = cluster.salloc([*ROCELAB, *acceptance(study, tmp_path)])
        by_srun = tmp_path / "by-srun.toml"
        by_srun.write_text('[mpi]\nstart = "srun"\n')
        kept = ["--results", str(tmp_path / "by-srun"), "--no-report"]
        words = [*ROCELAB, "run", "--fabric", "hosts", "--hosts", str(by_srun), str(jobs), *kept]
        done_by_srun = cluster.salloc(words)
    assert "2 hosts, from the allocation" in checked.stdout, checked.stderr
    assert ", by slurm" in checked.stdout
    check_acceptance(accepted, tmp_path)
    assert done_by_srun.exit_status == 0, done_by_srun.stderr
    check_jobs(tmp_path / "by-srun")
    assert any("srun" in each.command for each in samples_in(tmp_path / "by-srun"))
    assert done_jobs.exit_status == 0, done_jobs.stderr
    check_jobs(tmp_path / "jobs")
    assert done.exit_status == 0, done.stderr
    (store,) = list_runs(tmp_path / "results")
    assert all(each.ok for each in store.samples())
    assert "Hosts, by slurm: node[0-1]" in store.info.provenance.notes[0]
