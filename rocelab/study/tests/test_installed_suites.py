"""`rocelab run` of an installed OMB and IMB: programs at a path that print as theirs do.

Neither can be had from a registry, so these stand in: scripts with the names, places and output of their programs,
which let rocelab-mpi measure.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rocelab.fabric import emulated
from rocelab.fabric.base import FabricError, LinkProfile
from rocelab.launch import mpi
from rocelab.results import RunStore, Sample, find_run
from rocelab.tools import rocelab_mpi
from rocelab.tools.interconnects import urxe

pytestmark = pytest.mark.fabric

STUDY = """\
schema = 1
id = "installed"
title = "An OMB and an IMB that were installed"
repetitions = 1

[tcp]
congestion_control = ["cubic"]

[[link]]
id = "direct"
kind = "direct"
mtu_bytes = 4200
"""

TEST = """
[[test]]
level = "mpi"
suite = "{suite}"
suite_folder = "{folder}"
test = "{test}"
{sizes}
iterations = 20
[test.variants]
{variants}
"""

#: By place below the folder: what the program hands to rocelab-mpi, and what is done to its text.
OMB = {
    # 3.1 has one latency without "Avg", knows no options, and measures 0 bytes too.
    "omb-3.1/osu_latency": (
        "latency -m 0:64 -i 20",
        "s/rocelab MPI Latency Test.*/OSU MPI Latency Test v3.1.1/; s/^# Size .*/# Size            Latency (us)/",
    ),
    "omb-5.9/libexec/osu-micro-benchmarks/mpi/collective/osu_iallreduce": (
        'iallreduce "$@"',
        "s/rocelab MPI .*/OSU MPI Non-blocking Allreduce Latency Test v5.9/",
    ),
    "omb-7.4/c/mpi/pt2pt/standard/osu_bw": ('bw "$@"', "s/rocelab MPI Bandwidth Test.*/OSU MPI Bandwidth Test v7.4/"),
    "omb-7.4/c/mpi/collective/blocking/osu_barrier": ('barrier "$@"', "s/rocelab MPI .*/OSU MPI Barrier Test v7.4/"),
    "omb-7.4/c/mpi/startup/osu_init": (
        "init",
        r"s/^ *\([0-9]*\)[0-9.]* .*/nprocs: 2, min: 41 ms, max: 43 ms, avg: 42 ms/",
    ),
}
IMB = r"""
test=$1; shift
while [ $# -gt 0 ]; do case $1 in
    -msglog) sizes="-m $((1 << ${2%:*})):$((1 << ${2#*:}))";;
    -iter) iterations="-i $2";;
esac; shift; done
PROGRAM $test $sizes $iterations | awk -v test=$test '
    test == "Barrier" && /^# Avg/ { print " #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]"; next }
    test == "Barrier" && /^ *[0-9]/ { print 20, $1, $1, $1; next }
    { print }'
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunStore:
    """A run of all of them, by the command line."""
    place = tmp_path_factory.mktemp("installed")
    program = rocelab_mpi.program("openmpi", None)
    for each in (program, urxe()):
        if each.path is None:
            pytest.skip(f"{each.name} is not there: {each.advice}")
    if not mpi.own("openmpi").mpiexec.exists():
        pytest.skip(f"there is no Open MPI: {mpi.own('openmpi').remedy}")
    try:
        emulated.up([LinkProfile("direct", "direct")]).close()
    except FabricError as error:
        pytest.skip(f"no emulated fabric on this machine: {error}")
    for path, (arguments, text) in OMB.items():
        _script(place / path, f"{program.path} {arguments} | sed '{text}'")
    _script(place / "imb" / "IMB-MPI1", IMB.replace("PROGRAM", str(program.path)))
    both = 'tcp = ["openmpi-ob1"]\nsoft-roce = ["openmpi-ucx"]'
    tcp = 'tcp = ["openmpi-ob1"]'
    tests = [
        ("osu", "omb-3.1", "latency", "sizes_bytes = [1, 16]", tcp),
        ("osu", "omb-5.9", "iallreduce", "sizes_bytes = [4, 8]", tcp),
        ("osu", "omb-7.4", "bw", "sizes_bytes = [64, 4096]", both),
        ("osu", "omb-7.4", "barrier", "", tcp),
        ("osu", "omb-7.4", "init", "", tcp),
        ("imb", "imb", "PingPong", "sizes_bytes = [8, 64]", tcp),
        ("imb", "imb", "Barrier", "", tcp),
    ]
    text = STUDY + "".join(
        TEST.format(suite=suite, folder=place / folder, test=test, sizes=sizes, variants=variants)
        for suite, folder, test, sizes, variants in tests
    )
    (place / "installed.toml").write_text(text)
    argv = [sys.executable, "-m", "rocelab", "run", "installed.toml"]
    done = subprocess.run(argv, cwd=place, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    return find_run(place / "results", "latest")


def _script(path: Path, body: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def of(run: RunStore, test: str, metric: str, statistic: str = "mean") -> list[Sample]:
    return [
        sample
        for sample in run.samples()
        if (sample.test, sample.metric, sample.statistic) == (test, metric, statistic)
    ]


def test_all_is_measured_by_the_installed_programs(run: RunStore) -> None:
    assert run.info.status == "complete"
    tools = {sample.test: sample.tool for sample in run.samples()}
    assert tools == {
        **{test: f"osu_{test}" for test in ("latency", "iallreduce", "bw", "barrier", "init")},
        **dict.fromkeys(("PingPong", "Barrier"), "IMB-MPI1"),
    }
    assert all(sample.ok for sample in run.samples())


def test_values_are_those_that_were_printed(run: RunStore) -> None:
    assert [sample.size_bytes for sample in of(run, "latency", "latency_us")] == [1, 16]
    assert [sample.size_bytes for sample in of(run, "iallreduce", "overlap_percent")] == [4, 8]
    assert {sample.interconnect for sample in of(run, "bw", "bandwidth_mbps")} == {"tcp", "soft-roce"}
    assert [sample.value for sample in of(run, "init", "init_us")] == [42_000.0]
    (bandwidth,) = (s for s in of(run, "bw", "bandwidth_mbps") if (s.interconnect, s.size_bytes) == ("tcp", 4096))
    printed = (run.path / str(bandwidth.log)).read_text()
    assert "# OSU MPI Bandwidth Test v7.4" in printed
    mb_per_s = next(line.split()[1] for line in printed.splitlines() if line.split()[:1] == ["4096"])
    assert bandwidth.value == pytest.approx(float(mb_per_s) * 8)
    assert [sample.size_bytes for sample in of(run, "PingPong", "bandwidth_mbps")] == [8, 64]
    assert [sample.size_bytes for sample in of(run, "Barrier", "latency_us", "max")] == [None]


def test_the_report_has_them(run: RunStore) -> None:
    page = (run.report / "index.html").read_text()
    for title in ("MPI bandwidth", "MPI barrier", "IMB Barrier", "MPI_Init", "IMB PingPong", "MPI iallreduce"):
        assert f">{title}</h2>" in page
