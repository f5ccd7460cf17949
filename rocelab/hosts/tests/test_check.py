"""What is said of hosts that are wrong, or not alike."""

from __future__ import annotations

from typing import Any

from rocelab.hosts import rails
from rocelab.hosts.check import findings
from rocelab.hosts.session import Clock
from rocelab.hosts.tests.examples import device, host, interface


def lines(facts: dict[str, Any], clocks: dict[str, Clock] | None = None) -> list[str]:
    return [f"{each.kind}: {each}" for each in findings(facts, rails.find(facts, []), clocks or {})]


def four(**changed: Any) -> dict[str, Any]:
    """Hosts that are alike, but for n3."""
    return {
        f"n{at}": host(
            {"eth0": interface(f"10.1.0.{at}/24")},
            programs={"iperf3": {"path": "/usr/bin/iperf3", "version": "iperf 3.12"}},
            **(changed if at == 3 else {}),
        )
        for at in range(1, 5)
    }


def test_nothing_is_said_of_hosts_that_are_alike_and_well() -> None:
    assert lines(four()) == []


def test_a_host_that_differs_is_named_with_what_others_have() -> None:
    assert lines(four(kernel="5.14")) == ["differs: n3: kernel: 5.14, where the 3 others have 6.1.0-40-amd64"]


def test_memory_may_differ_a_little_but_not_by_a_bank() -> None:
    assert lines(four(memory_gib=503.1)) == []
    assert lines(four(memory_gib=440.5)) == ["differs: n3: memory in GiB: 440.5, where the 3 others have 503.5"]


def test_where_no_value_is_usual_all_are_named() -> None:
    facts = four()
    for name in ("n1", "n2"):
        facts[name]["system"]["ofed"] = "MLNX_OFED_LINUX-5.8"
    assert lines(facts) == ["differs: n[1-4]: OFED differs: n[1-2] MLNX_OFED_LINUX-5.8; n[3-4] none"]


def test_interfaces_devices_and_programs_are_compared() -> None:
    facts = four()
    for at, said in enumerate(facts.values(), start=1):
        said["devices"]["mlx5_0"] = device("eth0", firmware="16.1" if at == 2 else "16.35")
    facts["n3"]["interfaces"]["eth0"]["mtu_bytes"] = 1500
    facts["n4"]["programs"] = {}
    found = lines(facts)
    assert "differs: n3: MTU of eth0: 1500, where the 3 others have 9000" in found
    assert "differs: n2: firmware of mlx5_0: 16.1, where the 3 others have 16.35" in found
    assert "differs: n4: iperf3: none, where the 3 others have iperf 3.12" in found


def test_what_is_wrong_comes_first_and_once_for_several_hosts() -> None:
    facts = four(kernel="5.14")
    for name in ("n1", "n4"):
        facts[name]["system"]["governor"] = "powersave"
    assert lines(facts)[0] == (
        "wrong: n[1,4]: the CPU frequency governor is powersave. Latencies are steady with `cpupower frequency-set -g "
        "performance`"
    )
    assert lines(facts)[-1].startswith("differs: n")


def test_too_narrow_a_slot_and_a_port_that_is_down_are_wrong() -> None:
    facts = four()
    for said in facts.values():
        said["devices"]["mlx5_0"] = device("eth0", pcie="16.0 GT/s x16", pcie_max="16.0 GT/s x16")
    facts["n2"]["devices"]["mlx5_0"]["pcie"] = "8.0 GT/s x8"
    facts["n3"]["devices"]["mlx5_0"]["ports"]["1"] |= {"state": "DOWN", "physical_state": "Disabled"}
    wrong = [line for line in lines(facts) if line.startswith("wrong")]
    assert "n2: mlx5_0 runs at PCIe 8.0 GT/s x8 and could at 16.0 GT/s x16" in wrong[0]
    assert "n3: mlx5_0 port 1 is not active (DOWN, Disabled)" in wrong[1]


def test_verbs_want_lockable_memory_and_an_iommu_that_lets_pass() -> None:
    facts = {
        name: {
            **said,
            "devices": {
                "mlx5_0": device(
                    "eth0",
                )
            },
        }
        for name, said in four().items()
    }
    facts["n1"]["system"] |= {"memlock_kib": 64, "iommu": "translating"}
    wrong = [line for line in lines(facts) if line.startswith("wrong: n1")]
    assert any("may lock 64 KiB of memory" in line for line in wrong)
    assert any("the IOMMU translates every DMA" in line for line in wrong)


def test_a_wrong_clock_is_told_from_one_that_was_badly_read() -> None:
    clocks = {"n1": Clock(0.01, 0.001), "n2": Clock(-3600.4, 0.1), "n3": Clock(2.0, 3.0)}
    assert lines(four(), clocks) == [
        "wrong: n2: its clock is 3600 s behind this machine's. Set it by chrony or systemd-timesyncd"
    ]
