"""Which processors are threads of one core."""

from __future__ import annotations

from pathlib import Path

from rocelab.launch.processors import count_cores, threads_last


def machine(root: Path, *siblings: str) -> Path:
    for processor, words in enumerate(siblings):
        folder = root / f"cpu{processor}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{words}\n", encoding="ascii")
    return root


def test_second_threads_of_cores_come_after_all_first_ones(tmp_path: Path) -> None:
    # Two ways in which machines number their threads.
    apart = machine(tmp_path / "apart", "0,2", "1,3", "0,2", "1,3")
    beside = machine(tmp_path / "beside", "0-1", "0-1", "2-3", "2-3")
    assert threads_last(range(4), apart) == [0, 1, 2, 3]
    assert threads_last(range(4), beside) == [0, 2, 1, 3]
    # Of a core whose first thread is not to be used, the second is the first.
    assert threads_last([1, 2, 3], beside) == [1, 2, 3]
    assert [count_cores(each, beside) for each in ([0, 2], [0, 2, 1], range(4))] == [2, 2, 2]


def test_where_the_machine_does_not_tell_each_processor_is_a_core(tmp_path: Path) -> None:
    assert threads_last([3, 0, 1], tmp_path) == [0, 1, 3]
