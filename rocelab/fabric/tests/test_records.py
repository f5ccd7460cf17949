"""Persistent fabrics: they outlive their maker, are found again, and go completely."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocelab.fabric import emulated, plan, records
from rocelab.fabric.base import FabricError
from rocelab.fabric.process import Identity, identity, pid_namespace
from rocelab.fabric.tests.conftest import DIRECT
from rocelab.fabric.tests.test_emulated import (
    namespaces_of,
    output_on,
    processes_in,
    processes_naming,
    with_a_bad_address,
)

#: Names of this test session alone: others may run on the same machine.
STAYS, LOST = f"stays-{os.getpid()}", f"lost-{os.getpid()}"

#: The rest of a record whose fabric no process reaches.
EMPTY = {"pid_namespace": pid_namespace(), "created_at": "", "links": [], "nodes": []}


@pytest.fixture(autouse=True)
def runtime(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for records of this test alone, with a name short enough for a socket."""
    folder = tmp_path_factory.mktemp("run")
    monkeypatch.setattr(records, "_directories", lambda: [folder / "mine" / "fabrics"])
    yield folder / "mine" / "fabrics"
    for record in records.records():
        records.remove(record)


@pytest.mark.fabric
def test_a_fabric_outlives_its_maker_and_goes_completely(can_emulate: None, runtime: Path) -> None:
    script = (
        "from pathlib import Path; from rocelab.fabric import records; from rocelab.fabric.base import LinkProfile\n"
        f"records._directories = lambda: [Path({str(runtime)!r})]\n"
        f"records.create({STAYS!r}, [LinkProfile('direct', 'direct')], ['left', 'right'])\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True, timeout=60)
    record = records.get(STAYS)
    assert record.alive
    assert [node.name for node in record.nodes] == ["left", "right"]
    namespaces = namespaces_of([node.pid for node in record.nodes])
    with record.attach() as fabric:
        assert output_on(fabric, fabric.node("right"), "uname", "-n") == "right\n"
    with record.attach() as again:  # closing the first left it as it was
        assert output_on(again, again.node("left"), "uname", "-n") == "left\n"
    records.remove(record)
    assert processes_naming(STAYS) == set()
    assert processes_in(namespaces) == set()
    assert records.records() == []
    assert list(runtime.iterdir()) == []


@pytest.mark.fabric
def test_nothing_of_the_keepers_reaches_a_program(can_emulate: None) -> None:
    record = records.create("closed", [DIRECT], ["a", "b"])
    with record.attach() as fabric:
        code = "import os; print(*[n for n in range(3, 99) if os.path.exists(f'/proc/self/fd/{n}')])"
        assert output_on(fabric, fabric.nodes[0], sys.executable, "-c", code) == "\n"


@pytest.mark.fabric
def test_names_are_taken_once_and_checked(can_emulate: None) -> None:
    records.create("taken", [DIRECT], ["a", "b"])
    with pytest.raises(
        FabricError, match="there is a fabric taken already; choose another name or run: rocelab fabric"
    ):
        records.create("taken", [DIRECT], ["a", "b"])
    for bad in ("", "../up", "a b", "x" * 33):
        with pytest.raises(FabricError, match="cannot be the name of a fabric"):
            records.create(bad, [DIRECT], ["a", "b"])
    with pytest.raises(FabricError, match="there is no fabric 'other'; there are: taken"):
        records.get("other")


@pytest.mark.fabric
def test_of_two_makers_at_once_one_gets_the_name(can_emulate: None, runtime: Path) -> None:
    script = (
        "from pathlib import Path; from rocelab.fabric import records; from rocelab.fabric.base import LinkProfile\n"
        f"records._directories = lambda: [Path({str(runtime)!r})]\n"
        "records.create('wanted', [LinkProfile('direct', 'direct')], ['left', 'right'])\n"
    )
    makers = [subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [maker.communicate(timeout=60)[1] for maker in makers]
    assert sorted(maker.returncode for maker in makers) == [0, 1], said
    assert "there is a fabric wanted already" in "".join(said)
    with records.get("wanted").attach() as fabric:
        assert output_on(fabric, fabric.nodes[0], "uname", "-n") == "left\n"


@pytest.mark.fabric
def test_a_fabric_that_cannot_be_made_leaves_no_file(
    can_emulate: None, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocelab.fabric.plan.specification", with_a_bad_address(plan.specification))
    with pytest.raises(FabricError, match="setting up eth0 of a"):
        records.create("never", [DIRECT], ["a", "b"])
    assert list(runtime.iterdir()) == []


@pytest.mark.fabric
def test_a_dead_fabric_is_seen_as_dead_and_its_name_is_free(can_emulate: None, runtime: Path) -> None:
    record = records.create("dies", [DIRECT], ["a", "b"])
    os.kill(record.keeper.pid, signal.SIGKILL)
    deadline_s = time.monotonic() + 60
    while record.alive:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    assert [found.alive for found in records.records()] == [False]
    with pytest.raises(FabricError, match="fabric dies has ended; remove its record with: rocelab fabric down dies"):
        record.attach()
    assert records.create("dies", [DIRECT], ["a", "b"]).alive


@pytest.mark.fabric
def test_a_fabric_without_its_record_is_found_and_ended(can_emulate: None, runtime: Path) -> None:
    record = records.create(LOST, [DIRECT], ["a", "b"])
    assert LOST not in [leftover.name for leftover in records.leftovers()]
    record.path.unlink()
    (leftover,) = [leftover for leftover in records.leftovers() if leftover.name == LOST]
    assert (leftover.kind, leftover.owner) == ("persistent", None)
    records.end(leftover.keeper, leftover.name)
    assert processes_naming(LOST) == set()


@pytest.mark.fabric
def test_a_fabric_on_record_elsewhere_is_not_a_leftover(
    can_emulate: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = records.create(LOST, [DIRECT], ["a", "b"])
    with monkeypatch.context() as another_login:
        another_login.setattr(records, "_directories", lambda: [tmp_path])
        assert LOST not in [leftover.name for leftover in records.leftovers()]
        record.socket_path.unlink()
        assert LOST in [leftover.name for leftover in records.leftovers()]


@pytest.mark.fabric
def test_the_fabric_of_a_running_process_is_no_leftover(can_emulate: None) -> None:
    with emulated.up([DIRECT]) as fabric:
        (found,) = [leftover for leftover in records.leftovers() if leftover.name == fabric.name]
        assert found.kind == "run"
        assert found.owner == identity(os.getpid())


def test_a_record_of_an_earlier_boot_or_a_reused_pid_is_dead(runtime: Path) -> None:
    runtime.mkdir(parents=True, mode=0o700)
    here = identity(os.getpid())
    assert here.alive()
    for number, other in enumerate(
        (Identity(here.pid, here.started_ticks, "another-boot"), Identity(here.pid, here.started_ticks + 1, here.boot))
    ):
        data = {"name": f"old{number}", "keeper": str(other), **EMPTY}
        (runtime / f"old{number}.json").write_text(json.dumps(data), encoding="utf-8")
    assert [(record.name, record.alive) for record in records.records()] == [("old0", False), ("old1", False)]
    for record in records.records():
        records.remove(record)  # and this process, whose pid it names, is not killed
    assert records.records() == []


def test_damaged_records_and_folders_of_others_are_passed_over(runtime: Path) -> None:
    runtime.mkdir(parents=True, mode=0o700)
    for name, text in (("a", "{"), ("b", "[]"), ("c", '{"name": "c"}'), ("d", '{"name": "d", "keeper": "x"}')):
        (runtime / f"{name}.json").write_text(text, encoding="utf-8")
    assert records.records() == []
    good = {"name": "good", "keeper": "1/1/x", **EMPTY}
    (runtime / "good.json").write_text(json.dumps(good), encoding="utf-8")
    assert [record.name for record in records.records()] == ["good"]
    runtime.chmod(0o777)  # any user could have put it there
    assert records.records() == []
    runtime.chmod(0o700)


@pytest.mark.fabric
def test_removing_a_fabric_spares_another_of_the_same_name(can_emulate: None) -> None:
    with emulated.up([DIRECT], name=STAYS) as namesake:
        records.remove(records.create(STAYS, [DIRECT], ["a", "b"]))
        assert output_on(namesake, namesake.nodes[0], "uname", "-n") == "node0\n"
