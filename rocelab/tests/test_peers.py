from rocelab import peers


def test_a_variant_is_a_name_and_a_congestion_control() -> None:
    variant = peers.with_control("openmpi-ucx", "cubic")
    assert (peers.name_of(variant), peers.control_of(variant)) == ("openmpi-ucx", "cubic")


def test_a_variant_without_a_congestion_control_is_its_name() -> None:
    assert (peers.name_of("blocking"), peers.control_of("blocking")) == ("blocking", None)


def test_tcps_that_wait_as_asked_are_chosen_under_every_control() -> None:
    measured = ["blocking@cubic", "busy-poll@cubic", "blocking@default", "blocking-iperf3@cubic", "unknown"]
    assert peers.references("network", measured, "blocking") == ["blocking@cubic", "blocking@default"]
    assert peers.references("network", measured, "polling") == ["busy-poll@cubic"]
    assert peers.references("network", measured) == ["blocking@cubic", "busy-poll@cubic", "blocking@default"]


def test_a_level_without_peers_has_none() -> None:
    assert peers.references("nas", ["openmpi-ob1@cubic"]) == []


def test_a_tcps_name_for_people_has_its_control_if_it_has_one() -> None:
    assert peers.title("openmpi-ob1@cubic") == "TCP, Open MPI's own, cubic"
    assert peers.title("busy-poll") == "TCP busy-polling"
    assert peers.title("sockets@default") == "TCP sockets, default"
    assert peers.title("blocking@default", "bbr") == "TCP blocking, default (bbr)"


def test_a_name_without_a_congestion_control_matches_any() -> None:
    assert peers.matches("blocking@cubic", "blocking")
    assert peers.matches("blocking", "blocking")
    assert peers.matches("blocking@cubic", "blocking@cubic")
    assert not peers.matches("blocking@bbr", "blocking@cubic")
    assert not peers.matches("blocking", "blocking@cubic")
    assert not peers.matches("blocking-iperf3@cubic", "blocking")
