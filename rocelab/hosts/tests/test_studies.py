"""What a study is on hosts: rails in place of its links, and what is measured over which."""

from __future__ import annotations

from typing import Any

import pytest

from rocelab.hosts import rails, studies
from rocelab.hosts.inventory import MpiTable
from rocelab.hosts.rails import Rail
from rocelab.hosts.tests.examples import device, gid, host, interface
from rocelab.study.loading import parse
from rocelab.study.plan import plan
from rocelab.study.schema import Study
from rocelab.study.steps import Step

TEXT = """\
schema = 1
id = "tiny"
title = "A tiny study"
repetitions = 1

[fabric]
nodes = 4

[[link]]
id = "direct"
kind = "bridge"

[[test]]
test = "latency"
sizes_bytes = [64]

[test.variants]
tcp = ["blocking", "blocking-qperf@cubic", "kernel-poll"]
soft-roce = ["send", "send-events"]

[[test]]
test = "mesh"
nodes = [2, 4]
links = ["direct"]

[test.variants]
tcp = ["blocking"]
soft-roce = ["write"]
"""


def study() -> Study:
    return parse(TEXT, "tiny.toml")


def rails_of(hosts: int = 2, **kinds: dict[str, Any]) -> list[Rail]:
    """Hosts with an interface for each rail, and with the devices that are given for some."""
    facts = {}
    for at in range(1, hosts + 1):
        interfaces, devices = {}, {}
        for number, (name, kind) in enumerate(kinds.items(), 1):
            address = f"10.{number}.0.{at}"
            interfaces[name] = interface(f"{address}/24", **kind.get("interface", {}))
            if "device" in kind:
                devices[f"d-{name}"] = device(name, gid(0, address, "RoCE v2"), **kind["device"])
        facts[f"n{at}"] = host(interfaces, devices)
    return rails.find(facts, [])


def series(adapted: Study) -> set[tuple[str, str, str, str]]:
    return {(step.link.id, step.test_name, step.interconnect, step.variant) for step in plan(adapted)}


def test_every_rail_has_the_studys_series_of_sockets_and_urxe() -> None:
    adapted, notes = studies.adapted(study(), rails_of(eth0={}, ens1={}), 4)
    assert series(adapted) == {
        (rail, test, *who)
        for rail in ("eth0", "ens1")
        for test, those in {
            "latency": [
                ("tcp", "blocking@default"),
                ("tcp", "blocking-qperf@default"),
                ("soft-roce", "send"),
                ("soft-roce", "send-events"),
            ],
            "mesh": [("tcp", "blocking@default"), ("soft-roce", "write")],
        }.items()
        for who in those
    }
    assert any("kernel-poll) is not measured here: the interfaces of hosts are not changed" in note for note in notes)
    assert any("with the congestion control that the hosts give it, and not with cubic" in note for note in notes)


def test_iwarp_over_the_hosts_tcp_has_the_control_that_they_give_it() -> None:
    text = TEXT.replace('soft-roce = ["send", "send-events"]', 'soft-iwarp = ["send", "write@cubic"]')
    adapted, notes = studies.adapted(parse(text, "tiny.toml"), rails_of(eth0={}), 4)
    assert {who[3] for who in series(adapted) if who[2] == "soft-iwarp"} == {"send@default", "write@default"}
    assert any(note.startswith("TCP, and iWARP over it, is measured with the congestion control") for note in notes)


@pytest.mark.parametrize(
    ("made", "verbs"), [({}, "roce"), ({"type": "RNIC"}, "iwarp"), ({"driver": "rdma_rxe"}, "rxe")]
)
def test_a_device_is_measured_beside_urxe(made: dict[str, Any], verbs: str) -> None:
    adapted, _ = studies.adapted(study(), rails_of(ens1={"device": made}), 4)
    assert {who[2:] for who in series(adapted) if who[1] == "latency"} >= {("soft-roce", "send"), (verbs, "send")}
    step = next(step for step in plan(adapted) if step.interconnect == verbs)
    assert [each.name for each in step.executables] == [step.tool]  # no urxe


def test_ip_over_infiniband_has_its_own_name_and_no_urxe() -> None:
    kind = {"interface": {"kind": "ipoib"}, "device": {"link_layer": "InfiniBand"}}
    adapted, _ = studies.adapted(study(), rails_of(ib0=kind), 4)
    assert {who[2] for who in series(adapted)} == {"ipoib", "infiniband"}


def test_meshes_are_as_large_as_there_are_hosts() -> None:
    adapted, notes = studies.adapted(study(), rails_of(eth0={}), 3)
    assert {key.nodes for step in plan(adapted) if step.test_name == "mesh" for key in step.keys} == {2}
    assert "mesh on 4 nodes is not measured: there are 3 hosts." in notes


def test_that_flows_share_no_link_of_hosts_is_said() -> None:
    shared = """
[[link]]
id = "shared"
kind = "bridge"
rate_mbps = 1000

[[test]]
test = "sharing"
links = ["shared"]
mixes = [{ soft-roce = 2 }]

[test.variants]
soft-roce = ["write"]
"""
    adapted, notes = studies.adapted(parse(TEXT + shared, "tiny.toml"), rails_of(eth0={}), 4)
    assert not any(step.test_name == "sharing" for step in plan(adapted))
    assert any(note.startswith("How flows share a link is not measured on hosts") for note in notes)


def test_programs_side_by_side_are_not_measured_and_it_is_said() -> None:
    beside = """
[[test]]
test = "side-by-side"
pairs = [1, 2]
sizes_bytes = [64]

[test.variants]
soft-roce = ["send"]
"""
    text = TEXT + '[[link]]\nid = "fast"\nkind = "direct"\n' + beside.replace("pairs", 'links = ["fast"]\npairs', 1)
    adapted, notes = studies.adapted(parse(text, "tiny.toml"), rails_of(eth0={}), 4)
    assert not any(step.test_name == "side-by-side" for step in plan(adapted))
    assert any(note.startswith("Programs side by side are not measured on hosts") for note in notes)


def test_nothing_of_this_machine_is_in_command_lines_for_hosts() -> None:
    adapted, _ = studies.adapted(study(), rails_of(eth0={}), 2)
    for step in studies.on_hosts(plan(adapted)):
        assert getattr(getattr(step, "method", None), "cycles_per_us", None) is None


JOBS = """
schema = 1
id = "jobs"
title = "Jobs"
[mpi]
mpich = "/study/mpich"
[[link]]
id = "a"
kind = "direct"
[[test]]
level = "mpi"
test = "latency"
sizes_bytes = [8]
[test.variants]
soft-roce = ["openmpi-ucx", "mpich-ucx"]
"""


def jobs(site: MpiTable) -> list[Step]:
    adapted, _ = studies.adapted(parse(JOBS, "jobs.toml"), rails_of(eth0={}), 2, site)
    return plan(adapted)


def test_the_sites_mpi_takes_the_place_of_the_studys() -> None:
    found = {str(each.folder) for step in jobs(MpiTable(openmpi="/site/openmpi")) for each in step.mpi_used}
    assert found == {"/site/openmpi", "/study/mpich"}


def test_where_slurm_starts_ranks_no_mpirun_is_needed() -> None:
    steps = jobs(MpiTable(openmpi="/site/openmpi"))
    assert "/site/openmpi/mpiexec" in studies.programs_of(steps)
    by_srun = studies.programs_of(steps, "srun")
    assert "srun" in by_srun
    assert not [name for name in by_srun if "mpiexec" in name]
    assert "srun" not in studies.programs_of(plan(studies.adapted(study(), rails_of(eth0={}), 2)[0]), "srun")
