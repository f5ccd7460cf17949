"""``rocelab run`` and ``rocelab studies`` as a person calls them: real fabrics, programs that work and that do not."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from rocelab import __version__
from rocelab.fabric import emulated
from rocelab.fabric.base import FabricError, LinkProfile
from rocelab.results import RunStore, list_runs
from rocelab.tools import sock

STUDY = """\
schema = 1
id = "tiny"
title = "A tiny study"
repetitions = 2
time_limit_s = 1

[tcp]
congestion_control = ["cubic"]

[[link]]
id = "direct"
kind = "direct"

[[test]]
test = "latency"
sizes_bytes = [1, 64, 1024]
point_ms = 10

[test.variants]
tcp = ["blocking"]
"""
WITH_SOFT_ROCE = STUDY + 'soft-roce = ["send"]\n'
LONG = STUDY.replace("repetitions = 2", "repetitions = 200")
#: Stands in for urxe: it gives no device, but passes on to the program, here a fake one.
FAKE_URXE = '#!/bin/sh\nif [ "$1" = run ]; then shift 2; exec "$@"; fi\necho "urxe 0.0.0"\n'
HANGING = "#!/bin/sh\necho started\nexec sleep 1000\n"
FAILING = "#!/bin/sh\necho 'no such device' >&2\nexit 7\n"


@pytest.fixture(scope="module", autouse=True)
def can_run() -> None:
    if sock.program().path is None:
        pytest.skip("rocelab-sock is not built: make -C bench")
    try:
        emulated.up([LinkProfile("direct", "direct")]).close()
    except FabricError as error:
        pytest.skip(f"no emulated fabric on this machine: {error}")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    write(tmp_path / "bin" / "urxe", FAKE_URXE)
    (tmp_path / "tiny.toml").write_text(STUDY)
    return tmp_path


def write(path: Path, script: str) -> None:
    path.write_text(script)
    path.chmod(0o755)


def environment(place: Path) -> dict[str, str]:
    path = f"{place / 'bin'}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "ROCELAB_URXE": str(place / "bin" / "urxe"), "COLUMNS": "100"}


def start(place: Path, *arguments: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "rocelab", *arguments]
    return subprocess.Popen(
        argv, cwd=place, env=environment(place), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def rocelab(place: Path, *arguments: str) -> tuple[int, str]:
    process = start(place, *arguments)
    out, err = process.communicate(timeout=100)
    return process.returncode, out + err


def only_run(place: Path) -> RunStore:
    (store,) = list_runs(place / "results")
    return store


def test_a_study_that_is_wrong_is_not_begun(place: Path) -> None:
    (place / "bad.toml").write_text(STUDY.replace("repetitions = 2", "repetitons = 2"))
    status, said = rocelab(place, "run", "bad.toml")
    assert status == 1
    assert "bad.toml:4: repetitons: unknown key 'repetitons'; did you mean 'repetitions'?" in said
    assert not (place / "results").exists()
    status, said = rocelab(place, "studies", "check", "bad.toml", "tiny.toml")
    assert status == 1
    assert "tiny.toml: in order, 6 measurements" in said


def test_wrong_use(place: Path) -> None:
    assert rocelab(place, "run")[0] == 1
    assert rocelab(place, "run", "tiny.toml", "--resume", "latest")[0] == 1
    status, said = rocelab(place, "run", "--resume", "latest")
    assert status == 1
    assert "no runs in results" in said


def test_missing_programs_are_named_with_their_packages(place: Path) -> None:
    (place / "tiny.toml").write_text(WITH_SOFT_ROCE)
    argv = [sys.executable, "-m", "rocelab", "run", "tiny.toml"]
    nothing = {"PATH": str(place / "bin"), "HOME": str(place), "ROCELAB_URXE": "/nowhere/urxe"}
    done = subprocess.run(argv, cwd=place, env=nothing, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "ib_send_lat: apt-get install perftest" in done.stderr
    assert "/nowhere/urxe, which $ROCELAB_URXE names, is not there" in done.stderr
    assert not (place / "results").exists()


def test_an_mpi_of_another_kind_is_refused_before_measuring(place: Path) -> None:
    (place / "bin").mkdir(exist_ok=True)
    (place / "bin" / "mpiexec").write_text("#!/bin/sh\necho 'mpiexec (Open MPI) 4.1.4'\n")
    (place / "bin" / "mpiexec").chmod(0o755)
    (place / "mpi.toml").write_text(
        'schema = 1\nid = "mpi"\ntitle = "t"\n[mpi]\nopenmpi = "bin"\n[[link]]\nid = "l"\nkind = "direct"\n'
        '[[test]]\nlevel = "mpi"\ntest = "barrier"\n[test.variants]\ntcp = ["openmpi-ob1"]\n'
    )
    status, said = rocelab(place, "run", "mpi.toml")
    assert status == 1
    assert "bin/mpiexec is Open MPI 4.1.4; 5 and newer can be used" in said
    assert not (place / "results").exists()


@pytest.mark.fabric
def test_two_studies_one_after_the_other(place: Path) -> None:
    status, said = rocelab(place, "run", "tiny.toml", "tiny.toml", "--no-report")
    assert status == 0, said
    stores = list_runs(place / "results")
    assert [store.info.status for store in stores] == ["complete", "complete"]
    assert all(len(store.done_keys()) == store.info.planned_steps == 6 for store in stores)
    provenance = stores[0].info.provenance
    assert provenance.cpu_model != "unknown"
    assert "rocelab-sock" in provenance.tools
    assert stores[0].study_text() == STUDY


@pytest.mark.fabric
@pytest.mark.parametrize(("script", "reason"), [(HANGING, "nothing listened"), (FAILING, "no such device")])
def test_a_broken_program_is_reported_and_can_be_tried_again(place: Path, script: str, reason: str) -> None:
    (place / "tiny.toml").write_text(WITH_SOFT_ROCE.replace("[1, 64, 1024]", "[1]").replace("tions = 2", "tions = 1"))
    write(place / "bin" / "ib_send_lat", script)
    status, said = rocelab(place, "run", "tiny.toml", "--no-report")
    assert status == 3, said
    assert "failed: direct, latency, soft-roce send, 1 B, repetition 1" in said
    assert "rocelab run --resume" in said
    store = only_run(place)
    assert store.info.status == "incomplete"
    (failed,) = [sample for sample in store.samples() if not sample.ok]
    assert reason in str(failed.error)
    assert failed.log is not None
    assert "ib_send_lat" in (store.path / failed.log).read_text()

    size_and_count = (
        "size=$(echo $@ | sed 's/.*-s \\([0-9]*\\).*/\\1/'); count=$(echo $@ | sed 's/.*-n \\([0-9]*\\).*/\\1/')"
    )
    listen = f"exec {sock.program().name} server --port $(echo $@ | sed 's/.*-p \\([0-9]*\\).*/\\1/')"
    connect = f"{sock.program().name} client 10.80.0.2 --port $(echo $@ | sed 's/.*-p \\([0-9]*\\).*/\\1/') > /dev/null"
    answer = 'echo " $size $count 1.0 9.0 2.0 2.5 0.1 3.0 4.0"'
    write(
        place / "bin" / "ib_send_lat",
        f'#!/bin/sh\n{size_and_count}\ncase "$*" in *10.80.0.2) {connect}; {answer};; *) {listen};; esac\n',
    )
    status, said = rocelab(place, "run", "--resume", "latest", "--no-report")
    assert status == 0, said
    assert "still 1 measurements" in said
    assert only_run(place).info.status == "complete"


@pytest.fixture
def under_way(place: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A long run that has measured something."""
    (place / "tiny.toml").write_text(LONG)
    process = start(place, "run", "tiny.toml", "--no-report")
    deadline_s = time.monotonic() + 30
    while not (found := list((place / "results").glob("*/samples.ndjson"))) or found[0].stat().st_size == 0:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    yield process, found[0].parent
    if process.poll() is None:
        process.kill()
        process.communicate()


def nothing_is_left(of: list[psutil.Process]) -> bool:
    _, alive = psutil.wait_procs(of, timeout=10)
    return not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.fabric
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_keeps_what_there_is(under_way: tuple[subprocess.Popen[str], Path], number: int) -> None:
    process, run = under_way
    started = psutil.Process(process.pid).children(recursive=True)
    assert started
    process.send_signal(number)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 130, said
    assert f"rocelab run --resume {run.name}" in said
    assert nothing_is_left(started)
    store = RunStore.open(run)
    assert store.info.status == "interrupted"
    assert 0 < len(store.done_keys()) < store.info.planned_steps


@pytest.mark.fabric
def test_a_killed_run_leaves_nothing_behind_and_can_be_resumed(
    place: Path, under_way: tuple[subprocess.Popen[str], Path]
) -> None:
    process, run = under_way
    started = psutil.Process(process.pid).children(recursive=True)
    status, said = rocelab(place, "run", "--resume", run.name, "--no-report")
    assert status == 1
    assert "under way in another process" in said
    process.kill()
    process.communicate()
    assert nothing_is_left(started)
    assert RunStore.open(run).info.status == "running"

    # So that it does not take long: only the repetitions that were begun, and one more.
    done = {key.repetition for key in RunStore.open(run).done_keys()}
    (run / "study.toml").write_text(STUDY.replace("repetitions = 2", f"repetitions = {max(done) + 2}"))
    status, said = rocelab(place, "run", "--resume", run.name, "--no-report")
    assert status == 0, said
    samples = RunStore.open(run).samples()
    keys = [(sample.key, sample.metric, sample.statistic) for sample in samples]
    assert len(keys) == len(set(keys)), "nothing was measured twice"


@pytest.mark.fabric
def test_two_runs_at_once(place: Path) -> None:
    processes = [start(place, "run", "tiny.toml", "--no-report") for _ in range(2)]
    for process in processes:
        _, said = process.communicate(timeout=100)
        assert process.returncode == 0, said
    assert len({store.info.id for store in list_runs(place / "results")}) == 2


def completion(words: str) -> list[str]:
    env = {**os.environ, "_ROCELAB_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    argv = [sys.executable, "-m", "rocelab"]
    return subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=60).stdout.split()


def test_the_shell_completes_commands_and_studies() -> None:
    assert {"run", "report", "compare", "studies", "fabric", "doctor"} <= set(completion("rocelab "))
    assert completion("rocelab run qu") == ["quick"]


def test_the_studies_are_listed_and_shown(place: Path) -> None:
    (place / "studies").mkdir()
    (place / "studies" / "mine.toml").write_text(STUDY)
    (place / "studies" / "broken.toml").write_text("schema = 2")
    status, said = rocelab(place, "studies")
    assert status == 0
    assert "quick" in said
    assert "mine" in said
    assert "not in order" in said
    status, said = rocelab(place, "studies", "show", "mine")
    assert status == 0
    assert "6 measurements" in said


@pytest.mark.fabric
@pytest.mark.slow
def test_the_report_is_written_and_a_summary_printed(place: Path) -> None:
    status, said = rocelab(place, "run", "tiny.toml")
    assert status == 0, said
    page = only_run(place).report / "index.html"
    assert page.is_file()
    assert str(page.relative_to(place)) in said
    info: dict[str, Any] = json.loads((only_run(place).path / "run.json").read_text())
    assert info["status"] == "complete"


def test_version(place: Path) -> None:
    status, said = rocelab(place, "--version")
    assert status == 0
    own = rf"rocelab {re.escape(__version__)}( \(commit [0-9a-f]{{12}}(, changed since)?\))?"
    assert re.fullmatch(rf"{own}\s+urxe:? .+\s+results: writes format version 1, reads 1\s*", said), said
