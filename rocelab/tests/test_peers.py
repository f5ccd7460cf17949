from rocelab import peers


def test_a_variant_is_a_name_and_a_congestion_control() -> None:
    variant = peers.with_control("openmpi-ucx", "cubic")
    assert (peers.name_of(variant), peers.control_of(variant)) == ("openmpi-ucx", "cubic")


def test_a_variant_of_a_run_that_names_no_congestion_control_is_its_name() -> None:
    assert (peers.name_of("blocking"), peers.control_of("blocking")) == ("blocking", None)


def test_the_tcps_that_wait_as_asked_are_chosen_under_every_congestion_control() -> None:
    measured = ["blocking@cubic", "busy-poll@cubic", "blocking@default", "blocking-iperf3@cubic", "unknown"]
    assert peers.references("network", measured, "blocking") == ["blocking@cubic", "blocking@default"]
    assert peers.references("network", measured, "polling") == ["busy-poll@cubic"]
    assert peers.references("network", measured) == ["blocking@cubic", "busy-poll@cubic", "blocking@default"]


def test_a_level_without_peers_has_none() -> None:
    assert peers.references("nas", ["openmpi-ob1@cubic"]) == []
