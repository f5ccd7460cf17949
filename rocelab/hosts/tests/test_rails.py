"""Which networks join hosts, found in what the hosts say of themselves."""

from __future__ import annotations

from typing import Any

import pytest

from rocelab.devices import DevicePort
from rocelab.fabric.base import FabricError
from rocelab.hosts import rails
from rocelab.hosts.inventory import RailTable
from rocelab.hosts.tests.examples import device, gid, host, interface


def two(make: Any) -> dict[str, Any]:
    return {f"n{index}": make(index) for index in (1, 2)}


def test_a_network_that_all_hosts_are_in_is_a_rail() -> None:
    facts = two(lambda at: host({"eth0": interface(f"10.1.0.{at}/24"), "ens1": interface(f"10.2.0.{at}/16")}))
    found = rails.find(facts, [])
    assert [rail.id for rail in found] == ["eth0", "ens1"]
    assert found[1].ends["n2"].address == "10.2.0.2"
    assert found[1].interconnects == ("tcp", "udp", "soft-roce", "soft-iwarp")
    assert (found[1].mtu_bytes, found[1].rate_mbps, found[1].verbs) == (9000, 100_000, None)


def test_a_rail_of_several_interface_names_has_its_networks_name() -> None:
    facts = two(lambda at: host({f"enp{at}s0": interface(f"10.1.0.{at}/24")}))
    (rail,) = rails.find(facts, [])
    assert rail.id == "net-10-1-0-0"
    assert rail.ends["n1"].interface == "enp1s0"


def test_what_every_host_has_for_itself_joins_nothing() -> None:
    facts = two(
        lambda at: host(
            {
                "docker0": interface("172.17.0.1/16"),
                "down": interface(f"10.9.0.{at}/24", state="down"),
                "eth0": interface(f"10.1.0.{at}/24"),
            }
        )
    )
    assert [rail.id for rail in rails.find(facts, [])] == ["eth0"]


def test_hosts_of_several_networks_are_joined_by_interface_name() -> None:
    facts = two(lambda at: host({"swp0": interface(f"10.{at}.0.1/30"), f"eth{at}": interface(f"192.0.2.{at * 16}/28")}))
    (rail,) = rails.find(facts, [])
    assert (rail.id, rail.ends["n2"].address) == ("swp0", "10.2.0.1")


def test_hosts_that_share_no_network_are_told_so() -> None:
    facts = two(lambda at: host({f"eth{at}": interface(f"10.{at}.0.1/24")}))
    with pytest.raises(FabricError, match=r"the hosts share no network.*hosts\.toml"):
        rails.find(facts, [])


def test_an_interfaces_device_has_the_roce_v2_gid_of_its_address() -> None:
    def make(at: int) -> dict[str, Any]:
        address = f"10.1.0.{at}"
        gids = [gid(0, "10.9.9.9", "RoCE v2"), gid(2, address, "IB/RoCE v1"), gid(3, address, "RoCE v2")]
        return host({"ens1": interface(f"{address}/24", local_cores="0-2,8")}, {"mlx5_0": device("ens1", *gids)})

    (rail,) = rails.find(two(make), [])
    assert rail.verbs == "roce"
    assert rail.ends["n1"].device == DevicePort("mlx5_0", 1, 3)
    assert rail.ends["n1"].cores == (0, 1, 2, 8)


@pytest.mark.parametrize(
    ("made", "verbs"),
    [
        (device("ens1", driver="rdma_rxe"), "rxe"),
        (device("ens1", driver="siw", type="RNIC"), "siw"),
        (device("ens1", type="RNIC", driver="irdma"), "iwarp"),
    ],
)
def test_verbs_are_what_type_and_driver_say(made: dict[str, Any], verbs: str) -> None:
    facts = two(lambda at: host({"ens1": interface(f"10.1.0.{at}/24")}, {"d": made}))
    assert rails.find(facts, [])[0].verbs == verbs


def test_hosts_with_different_verbs_have_none_in_common() -> None:
    facts = two(
        lambda at: host(
            {"ens1": interface(f"10.1.0.{at}/24")}, {"d": device("ens1", driver=("rdma_rxe", "mlx5_core")[at - 1])}
        )
    )
    assert rails.find(facts, [])[0].verbs is None


def test_infiniband_without_addresses_is_a_rail_of_verbs_alone() -> None:
    def make(at: int) -> dict[str, Any]:
        ports = device("", link_layer="InfiniBand")
        return host(
            {"eth0": interface(f"10.1.0.{at}/24")}, {"mlx5_0": ports, "mlx5_1": ports} if at == 1 else {"mlx5_0": ports}
        )

    found = rails.find(two(make), [])
    assert [rail.id for rail in found] == ["eth0", "mlx5-0"]
    assert (found[1].verbs, found[1].interconnects) == ("infiniband", ())
    # Programs find each other over the other network.
    assert found[1].ends["n2"].address == "10.1.0.2"
    assert found[1].ends["n2"].device == DevicePort("mlx5_0", 1, None)


def test_ip_over_infiniband_is_not_ethernet() -> None:
    def make(at: int) -> dict[str, Any]:
        return host(
            {"ib0": interface(f"10.3.0.{at}/24", kind="ipoib")},
            {"mlx5_0": device("ib0", gid(0, f"10.3.0.{at}", "IB/RoCE v1"), link_layer="InfiniBand")},
        )

    (rail,) = rails.find(two(make), [])
    assert (rail.interconnects, rail.verbs) == (("ipoib",), "infiniband")
    assert rail.ends["n1"].device == DevicePort("mlx5_0", 1, None)


def test_rails_that_are_named_are_taken_and_no_others() -> None:
    facts = two(
        lambda at: host(
            {"eth0": interface(f"10.1.0.{at}/24"), "ens1": interface(f"10.2.0.{at}/24")}, {"mlx5_7": device("ens1")}
        )
    )
    tables = [
        RailTable(id="slow", interface="eth0"),
        RailTable(id="fast", network="10.2.0.0/16", device="mlx5_7", gid_index=5),
    ]
    found = rails.find(facts, tables)
    assert [rail.id for rail in found] == ["slow", "fast"]
    assert found[1].ends["n1"].device == DevicePort("mlx5_7", 1, 5)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (RailTable(id="x", interface="eth9"), r"n1 has no interface eth9 that is up.*it has: eth0 10\.1\.0\.1/24"),
        (RailTable(id="x", network="10.7.0.0/16"), r"n1 has no address in 10\.7\.0\.0/16"),
        (RailTable(id="x", interface="eth0", device="mlx5_3"), "there is no RDMA device mlx5_3.*there is: none"),
    ],
)
def test_a_rail_that_a_host_does_not_have_is_named(table: RailTable, words: str) -> None:
    facts = two(lambda at: host({"eth0": interface(f"10.1.0.{at}/24")}))
    with pytest.raises(FabricError, match=words):
        rails.find(facts, [table])
