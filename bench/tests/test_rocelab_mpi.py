"""rocelab-mpi as a user meets it: every benchmark under both MPIs, its columns, its verdict on the data, its errors."""

from __future__ import annotations

import math
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from .conftest import Mpi

#: Few and short, so that ranks that share processors come through.
QUICK = ("-i", "3", "-x", "1")
#: One size that MPIs send at once and one for which they first agree.
SIZES = ("-m", "4:4"), ("-m", "65536:65536")


def listed(mpi: Mpi, ranks: int) -> set[str]:
    """The benchmarks that run with so many ranks."""
    lines = subprocess.run([mpi.program, "--list"], capture_output=True, text=True, check=True).stdout.splitlines()
    fits = {
        "2 ranks": ranks == 2,
        "an even number of ranks": ranks % 2 == 0,
        "2 or more ranks": ranks >= 2,
        "1 or more ranks": True,
    }
    rows = [re.split(r"\s{2,}|\s(?=\w+ {3,})", line, maxsplit=2) for line in lines]
    return {row[0] for row in rows if fits[row[2].strip()]}


@pytest.mark.parametrize(("ranks", "sizes"), [(2, SIZES[0]), (2, SIZES[1]), (3, SIZES[1])])
def test_every_benchmark_gives_numbers_from_right_data(mpi: Mpi, ranks: int, sizes: tuple[str, str]) -> None:
    samples = mpi.samples(ranks, "all", *QUICK, *sizes)

    assert {sample["benchmark"] for sample in samples} == listed(mpi, ranks)
    for sample in samples:
        assert sample["validation"] in {"pass", "none"}, sample
        assert sample["format"] == 1
        assert sample["ranks"] == ranks
        assert sample["metrics"], sample
        assert all(math.isfinite(value) and value >= 0 for value in sample["metrics"].values()), sample
        if "spread" in sample:
            spread = sample["spread"]
            assert spread["min"] <= spread["p50"] <= spread["p90"] <= spread["p99"] <= spread["max"]
            assert spread["samples"] == sample["iterations"]
            assert spread["metric"] in sample["metrics"]


def test_fresh_data_in_every_iteration_is_right_too(mpi: Mpi) -> None:
    for sample in mpi.samples(2, "all", *QUICK, "-c", "-m", "8:8"):
        assert sample["validation"] in {"pass", "none"}, sample


@pytest.mark.parametrize("each", [(), ("-c",)])
def test_wrong_data_is_found_and_gives_no_numbers(mpi: Mpi, each: tuple[str, ...]) -> None:
    samples = mpi.samples(2, "all", *QUICK, *each, "-m", "8:8", "--corrupt", status=1)

    checked = [sample for sample in samples if sample["validation"] != "none"]
    assert len(checked) > 40
    for sample in checked:
        assert sample["validation"] == "fail", sample
        assert sample["wrong_bytes"] > 0
        assert sample["metrics"] == {}
        assert "spread" not in sample


def test_wrong_data_has_no_numbers_in_text_either(any_mpi: Mpi) -> None:
    done = any_mpi.run(2, "latency", *QUICK, "-m", "8:8", "--corrupt", "-c")

    assert done.returncode == 1
    assert rows(done.stdout) == [["8", "-", "Fail"]]
    assert "latency, 8 bytes" in done.stderr


def rows(text: str) -> list[list[str]]:
    """The lines with numbers, by column."""
    return [line.split() for line in text.splitlines() if line and not line.lstrip().startswith("#")]


def headings(text: str) -> list[str]:
    """The line above the numbers, by column."""
    line = [line for line in text.splitlines() if line.startswith("#")][-1]
    return re.split(r"\s{2,}", line.lstrip("# "))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["latency"], ["Size", "Avg Latency(us)"]),
        (["latency", "-z50,99.9"], ["Size", "Avg Latency(us)", "P50 Tail Lat(us)", "P99.9 Tail Lat(us)"]),
        (["bw", "-c"], ["Size", "Bandwidth (MB/s)", "Validation"]),
        (["mbw_mr"], ["Size", "MB/s", "Messages/s"]),
        (["mbw_mr", "-R", "0", "-z99"], ["Size", "MB/s", "P99 Tail BW(MB/s)"]),
        (["allreduce", "-f"], ["Size", "Avg Latency(us)", "Min Latency(us)", "Max Latency(us)", "Iterations"]),
        (["barrier"], ["Avg Latency(us)"]),
        (["iallreduce", "-t", "3"], ["Size", "Overall(us)", "Compute(us)", "Pure Comm.(us)", "Overlap(%)"]),
        (["put_latency"], ["Size", "Avg Latency(us)"]),
        (["put_bw", "-s", "fence"], ["Size", "Bandwidth (MB/s)"]),
        (["mesh"], ["Size", "Rank (MB/s)", "Node (MB/s)", "Total (MB/s)"]),
    ],
)
def test_columns_are_those_of_omb(any_mpi: Mpi, arguments: list[str], expected: list[str]) -> None:
    done = any_mpi.run(2, *arguments, *QUICK, "-m", "4:8")

    assert done.returncode == 0, done.stderr
    assert headings(done.stdout) == expected
    table = rows(done.stdout)
    assert [len(row) for row in table] == [len(expected)] * (1 if arguments == ["barrier"] else 2)
    if expected[0] == "Size":
        assert [row[0] for row in table] == ["4", "8"]


def test_imb_tables_have_its_columns_and_repetitions(mpi: Mpi) -> None:
    done = mpi.run(2, "PingPong", "sendrecv", "Uniband", "-x", "0", "-i", "2", "-m", "0:2")

    text = done.stdout
    assert "# Benchmarking PingPong" in text
    assert "#processes = 2" in text
    assert re.search(r"#bytes\s+#repetitions\s+t\[usec\]\s+Mbytes/sec\n", text)
    assert re.search(r"t_min\[usec\]\s+t_max\[usec\]\s+t_avg\[usec\]\s+Mbytes/sec\n", text)
    assert re.search(r"#repetitions\s+Mbytes/sec\s+Msg/sec\n", text)
    assert [row[:2] for row in rows(text)] == [["0", "2"], ["1", "2"], ["2", "2"]] * 3


def test_imb_moves_a_limited_volume(any_mpi: Mpi) -> None:
    (sample,) = any_mpi.samples(2, "PingPong", "-m", "4194304:4194304")

    assert 1 <= sample["iterations"] <= 10


def test_percentiles_asked_for_are_in_json(any_mpi: Mpi) -> None:
    (sample,) = any_mpi.samples(2, "latency", *QUICK, "-m", "8:8", "-z25,99.9")

    assert {"min", "p25", "p99.9", "max"} <= set(sample["spread"])


def test_every_datatype_gets_its_lines(any_mpi: Mpi) -> None:
    samples = any_mpi.samples(2, "allreduce", *QUICK, "-m", "1:8", "-T", "all")

    assert [(sample["datatype"], sample["size_bytes"]) for sample in samples] == [
        *(("mpi_char", size) for size in (1, 2, 4, 8)),
        *(("mpi_int", size) for size in (4, 8)),
        *(("mpi_float", size) for size in (4, 8)),
    ]


def test_ranks_without_a_peer_stand_by(any_mpi: Mpi) -> None:
    (sample,) = any_mpi.samples(3, "mbw_mr", *QUICK, "-m", "8:8", "-p", "1")

    assert sample["parameters"] == {"window": 64, "pairs": 1}
    assert sample["validation"] == "pass"


def test_memory_limit_leaves_larger_sizes_out_and_says_so(any_mpi: Mpi) -> None:
    done = any_mpi.run(2, "alltoall", *QUICK, "-m", "1024:8192", "-M", "10000")

    assert [row[0] for row in rows(done.stdout)] == ["1024", "2048"]
    assert "from 4096 bytes on are left out" in done.stderr
    assert done.returncode == 0


def test_a_link_named_as_omb_names_it_runs_that_benchmark(any_mpi: Mpi, tmp_path: Path) -> None:
    link = tmp_path / "osu_latency"
    link.symlink_to(any_mpi.program)
    done = any_mpi.run(2, *QUICK, "-m", "8:8", program=link)

    assert done.stdout.startswith("\n# rocelab MPI Latency Test")


def test_omb_names_of_incast_and_outcast(any_mpi: Mpi) -> None:
    samples = any_mpi.samples(2, "bw_fan_in", "bw_fan_out", *QUICK, "-m", "8:8")

    assert [sample["benchmark"] for sample in samples] == ["incast", "outcast"]


def test_processes_that_were_forked_end_with_their_size(mpi: Mpi) -> None:
    samples = mpi.samples(2, "latency_mp", *QUICK, "-c", "-m", "8:65536", "-t", "2:4")

    assert {(sample["validation"], sample["parameters"]["processes"]) for sample in samples} == {("pass", "2:4")}
    left = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert f"{mpi.program} latency_mp" not in left


def test_unsuitable_ranks_are_an_error_unless_a_group_was_asked(any_mpi: Mpi) -> None:
    alone = any_mpi.run(3, "latency", *QUICK, "-m", "8:8")
    group = any_mpi.run(3, "imb", *QUICK, "-m", "8:8")

    assert alone.returncode == 2
    assert "latency needs exactly 2 ranks (ranks here: 3)" in alone.stderr
    assert group.returncode == 0
    assert "PingPong needs exactly 2 ranks (ranks here: 3): left out" in group.stderr
    assert "Benchmarking Exchange" in group.stdout


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "which benchmark?"),
        (["latencee"], "no benchmark 'latencee'"),
        (["latency", "--frobnicate"], "no option --frobnicate"),
        (["latency", "-i"], "-i needs a value"),
        (["latency", "-i", "0"], "'0': -i is a number from 1"),
        (["latency", "-m", "8:4"], "MIN:MAX"),
        (["latency", "-T", "mpi_double"], "mpi_float"),
        (["latency", "-z100"], "below 100"),
        (["neighbor_alltoall", "-N", "ring"], "cart:D:R"),
        (["put_latency", "-w", "static"], "allocate, create, dynamic"),
        (["latency", "-c", "--no-validation"], "exclude each other"),
    ],
)
def test_wrong_use_is_said_once_and_clearly(any_mpi: Mpi, arguments: list[str], expected: str) -> None:
    done = any_mpi.run(2, *arguments)

    assert done.returncode == 2
    assert done.stderr.count("rocelab-mpi: ") == 1
    assert expected in done.stderr
    assert rows(done.stdout) == []


@pytest.mark.parametrize("option", ["--help", "--version", "--list"])
def test_questions_need_no_mpirun(any_mpi: Mpi, option: str) -> None:
    done = subprocess.run([any_mpi.program, option], capture_output=True, text=True, check=True)

    assert "rocelab-mpi" in done.stdout or "latency " in done.stdout


def test_overlap_is_the_part_of_the_call_that_hides_behind_work(mpi: Mpi) -> None:
    metrics: dict[str, Any]
    for sample in mpi.samples(2, "ialltoall", "overlap_send", "overlap_recv", *QUICK, "-m", "65536:65536"):
        metrics = sample["metrics"]
        exposed_us = max(0, metrics["overall_us"] - metrics["compute_us"])
        hidden = max(0, 1 - exposed_us / metrics["pure_us"])
        assert metrics["overlap_percent"] == pytest.approx(100 * hidden, abs=0.5)
        # The work is as long as the call alone is. What else runs can only make it longer.
        assert metrics["compute_us"] > metrics["pure_us"] / 2


@pytest.mark.parametrize(
    ("window", "sync"),
    [
        *(("allocate", sync) for sync in ("lock", "flush", "flush_local", "lock_all", "pscw", "fence")),
        *((window, sync) for window in ("create", "dynamic") for sync in ("flush", "fence")),
    ],
)
def test_one_sided_data_is_right_in_every_window_and_mode(mpi: Mpi, window: str, sync: str) -> None:
    skipped = [] if sync in {"pscw", "fence"} else ["put_bibw"]
    names = ["put_latency", "get_latency", "acc_latency", "get_acc_latency", "fop_latency", "cas_latency"]
    names += ["put_bw", "get_bw", "put_bibw"]
    samples = mpi.samples(
        2, *(name for name in names if name not in skipped), *QUICK, "-m", "8:8", "-w", window, "-s", sync
    )

    assert len(samples) == len(names) - len(skipped)
    for sample in samples:
        assert sample["validation"] == "pass", sample
        assert sample["parameters"]["window_type"] == window
        assert sample["parameters"]["sync"] == sync


def test_both_ways_needs_a_synchronisation_in_which_both_act(any_mpi: Mpi) -> None:
    done = any_mpi.run(2, "put_bibw", *QUICK, "-s", "lock")

    assert done.returncode == 2
    assert "put_bibw needs -s pscw or -s fence" in done.stderr


@pytest.mark.parametrize(("ranks", "grid", "neighbours"), [(2, "cart:1:1", 2), (4, "cart:2:1", 4), (3, "cart:1:2", 4)])
def test_neighbours_of_a_grid_get_their_own_blocks(mpi: Mpi, ranks: int, grid: str, neighbours: int) -> None:
    forms = ("neighbor_alltoall", "neighbor_alltoallw", "ineighbor_allgatherv", "neighbor_alltoallv_persistent")
    samples = mpi.samples(ranks, *forms, "-i", "2", "-x", "1", "-m", "64:64", "-N", grid)

    assert [sample["validation"] for sample in samples] == ["pass"] * len(forms)
    assert {sample["parameters"]["neighbours"] for sample in samples} == {neighbours}


def test_sizes_are_of_whole_elements(any_mpi: Mpi) -> None:
    samples = any_mpi.samples(2, "latency", *QUICK, "-m", "6:12", "-T", "mpi_int")

    assert [(sample["size_bytes"], sample["validation"]) for sample in samples] == [(4, "pass"), (12, "pass")]
