"""Which hosts are meant, and what is said where that is not clear."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocelab.fabric.base import FabricError
from rocelab.hosts import inventory

SLURM = {"SLURM_JOB_NODELIST": "gpu[01-02],login"}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_list_is_written_as_slurm_and_clustershell_do() -> None:
    found = inventory.find("node[08-10],a", {})
    assert found.names == ("a", "node08", "node09", "node10")
    assert found.launcher == "ssh"


def test_the_allocation_of_slurm_is_the_fabric() -> None:
    found = inventory.find(None, SLURM)
    assert (found.names, found.launcher) == (("gpu01", "gpu02", "login"), "slurm")
    assert inventory.find("gpu02,login", SLURM).launcher == "slurm"
    # One that is not in the allocation cannot be reached by it.
    assert inventory.find("gpu02,other", SLURM).launcher == "ssh"


def test_the_allocation_of_pbs_names_a_host_once(tmp_path: Path) -> None:
    nodes = tmp_path / "nodes"
    nodes.write_text("b\nb\na\na\n")
    assert inventory.find(None, {"PBS_NODEFILE": str(nodes)}).names == ("b", "a")


def test_a_file_says_more_and_is_found_where_nothing_is_named(tmp_path: Path) -> None:
    (tmp_path / "hosts.toml").write_text(
        'hosts = ["n[1-2]", "m"]\npython = "python3.11"\n[[rail]]\nid = "fast"\ninterface = "ens1"\n'
    )
    found = inventory.find(None, SLURM)
    assert (found.names, found.launcher, found.table.python) == (("n1", "n2", "m"), "ssh", "python3.11")
    assert found.table.rail[0].interface == "ens1"


def test_a_file_without_hosts_takes_those_of_the_allocation(tmp_path: Path) -> None:
    (tmp_path / "rails.toml").write_text('[[rail]]\nid = "fast"\nnetwork = "10.1.0.0/16"\n')
    assert inventory.find("rails.toml", SLURM).names == ("gpu01", "gpu02", "login")


def test_hosts_can_be_left_out() -> None:
    found = inventory.find("node[1-3]", {})
    assert found.without(["node2"]).names == ("node1", "node3")
    with pytest.raises(FabricError, match="there is no host node7 to do without"):
        found.without(["node7"])


@pytest.mark.parametrize(
    ("named", "words"),
    [
        (None, "which hosts\\? Name them"),
        ("node[1-", "not a list of hosts: .*written as node\\[01-16\\]"),
        ("nowhere.toml", "nowhere.toml: there is no such file"),
        ("a[1-2]&b", "there is no host in it"),
    ],
)
def test_naming_no_hosts_is_refused_with_the_ways_to_name_them(named: str | None, words: str) -> None:
    with pytest.raises(FabricError, match=words):
        inventory.find(named, {})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('hosts = "a"\nlauncher = "rsh"\n', ':2: launcher: "rsh" is not known; allowed: "ssh" or "slurm"'),
        ('hosts = "a"\nlauncher = "slurm"\n', "this is no allocation of Slurm: begin with `salloc`"),
        ('hosts = "a"\nrails = 1\n', ":2: rails: unknown key 'rails'; did you mean 'rail'?"),
        ('hosts = "a"\n[[rail]]\nid = "x"\n', ":2: rail\\[1\\]: a rail has `interface`"),
        ('hosts = "a"\n[[rail]]\nid = "x"\nnetwork = "10.1.2.3/8"\n', "has host bits set"),
        (
            'hosts = "a"\n[[rail]]\nid = "x"\ninterface = "e"\n[[rail]]\nid = "x"\ninterface = "f"\n',
            ":5: rail\\[2\\]: there is another rail 'x' before it",
        ),
        ("hosts = [", "not valid TOML"),
    ],
)
def test_a_file_that_is_wrong_is_named_with_line_and_key(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "hosts.toml").write_text(text)
    with pytest.raises(FabricError, match=words):
        inventory.find(None, {})


def test_srun_needs_an_allocation(tmp_path: Path) -> None:
    path = tmp_path / "hosts.toml"
    path.write_text('hosts = "n[1-2]"\n[mpi]\nstart = "srun"\n')
    with pytest.raises(FabricError, match=r'mpi\.start = "srun" is for hosts of an allocation.*"mpirun"'):
        inventory.find(str(path), {})
    found = inventory.find(str(path), {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]"})
    assert found.table.mpi.start == "srun"


def test_each_host_has_a_switch_or_none_has(tmp_path: Path) -> None:
    path = tmp_path / "hosts.toml"
    two = '[[switch]]\nid = "a"\nhosts = "n[1-2]"\n[[switch]]\nid = "b"\nhosts = ["n3"]\n'
    path.write_text(f'hosts = "n[1-3]"\n{two}')
    assert inventory.find(str(path), {}).switches == {"n1": "a", "n2": "a", "n3": "b"}
    path.write_text(f'hosts = "n[1-5]"\n{two}')
    with pytest.raises(FabricError, match=r"n\[4-5\]: no \[\[switch\]\] has them"):
        inventory.find(str(path), {})
    path.write_text(f'hosts = "n[1-3]"\n{two}[[switch]]\nid = "c"\nhosts = "n3"\n')
    with pytest.raises(FabricError, match="n3 is at the switches b and c"):
        inventory.find(str(path), {})
