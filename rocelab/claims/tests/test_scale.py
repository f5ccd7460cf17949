"""What is smaller in a run than in the source stands beside the verdict."""

from __future__ import annotations

import dataclasses
from typing import Any

from rocelab.claims import all_claims, claims_by_id, judge
from rocelab.claims.tests.simulated import VIRTUAL, series, verdict_of
from rocelab.claims.tests.test_claims import INFO, repeated
from rocelab.claims.tests.test_sorts import INFO_25, sorts
from rocelab.results import LinkInfo

YCSB: dict[str, Any] = {
    "level": "cloud", "test": "ycsb-mix", "metric": "throughput_per_s", "interconnect": "tcp", "variant": "sockets",
    "link": "ipoib-fdr", "size_bytes": 1000,
}  # fmt: skip


def test_records_servers_and_rates_are_told() -> None:
    said = judge(claims_by_id(["R7"])[0], INFO_25, sorts()).scaled
    assert said == ("records: 1,280,000 of 100,000,000", "servers: 3 of 16", "rate of a port: 2.5 of 25 Gbps")


def test_what_is_as_large_as_in_the_source_is_not_told() -> None:
    links = (LinkInfo("server-25", "bridge", 4200, 25_000.0),)
    assert judge(claims_by_id(["R7"])[0], dataclasses.replace(INFO, links=links), sorts(16)).scaled == (
        "records: 1,280,000 of 100,000,000",
    )


def test_parameters_and_repetitions_of_the_tests_of_the_rule_are_told() -> None:
    info = dataclasses.replace(INFO, links=(LinkInfo("ipoib-fdr", "bridge", 9000, 5400.0),))
    other = repeated(1.0, **(YCSB | {"test": "testdfsio", "params": {"records": 9}}))
    samples = [*repeated(1.0, **(YCSB | {"params": {"records": 5000}})), *other]
    said = judge(claims_by_id(["V14"])[0], info, samples).scaled
    assert said == ("records: 5,000 of 320,000", "repetitions: 3 of 10", "rate of IPoIB FDR: 5.4 of 54 Gbps")


def test_a_simulation_is_not_repeated_and_yet_has_few_iterations() -> None:
    of: dict[str, Any] = {"level": "nas", "test": "bt.C", "metric": "time_s", "link": "sx6036", "variant": "smpi"}
    samples = series({0: 25.0}, **of, interconnect="roce-40g", nodes=4, ranks=64, params={"iterations": 20})
    assert verdict_of("V11", samples, VIRTUAL).scaled == ("iterations of BT: 20 of 200",)


def test_every_claim_says_where_it_stands_how_it_is_read_and_what_speaks_against_it() -> None:
    for claim in all_claims():
        assert claim.where, claim.id
        assert claim.reading.endswith("."), claim.id
        assert claim.against.endswith("."), claim.id
