"""urxe against urxe inside guests with kernels from Linux 5.10 to the newest: part of `make interop`.

A guest has two network namespaces, with a cable between them, and a program in each. What a kernel does not have, urxe
does without: every program has to run, with the right to send frames and without it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final

import pytest

from .guest import LINK_MTU_BYTES, Finished, Guest
from .interop import ENV, LIMIT_S, URXE_LISTENS, each, wait_for
from .kernels import BUILT, EVERY
from .runs import WITHIN, WITHIN_COLUMNS, Run, Side, command_lines, documented, table
from .speed import urxe_program

pytestmark = pytest.mark.timeout(5 * LIMIT_S)
INTERFACE: Final = "veth0"
#: The two namespaces, each with its address.
ADDRESSES: Final = {"one": "10.77.0.1", "two": "10.77.0.2"}
#: How programs are started, by what they may do.
RIGHTS: Final = {"frames": (), "no frames": ("setpriv", "--bounding-set=-net_raw", "--inh-caps=-net_raw")}
#: The first kernel on which urxe sends frames (nic/udp/src/frames/ring.rs).
FRAMES_SINCE: Final = (6, 2)
#: How long the program runs whose counters are looked at, and how much it has to have sent then.
MEASURED_S, MEASURED_PACKETS = 20, 50
#: What became of each run, by its name and its column in the table.
OUTCOMES: dict[tuple[str, str], bool] = {}


@pytest.fixture(scope="module")
def wired_guest(any_guest: Guest) -> Guest:
    """A guest with both namespaces."""
    mtu = f"mtu {LINK_MTU_BYTES}"
    lines = [f"ip netns add {name}" for name in ADDRESSES]
    lines += [f"ip link add {INTERFACE} {mtu} netns one type veth peer name {INTERFACE} {mtu} netns two"]
    for name, address in ADDRESSES.items():
        lines += [f"ip -n {name} address add {address}/24 dev {INTERFACE}"]
        lines += [f"ip -n {name} link set {each} up" for each in ("lo", INTERFACE)]
    any_guest.shell(*lines)
    return any_guest


def within(name: str, argv: Sequence[str]) -> list[str]:
    """What runs a command in a namespace of the guest."""
    return ["/sbin/ip", "netns", "exec", name, *argv]


def side(name: str) -> Side:
    return Side(f"urxe_{INTERFACE}", "0", "", ADDRESSES[name], "")


def both(guest: Guest, run: Run, rights: Sequence[str]) -> tuple[Finished, Finished]:
    """Run the server in one namespace and the client in the other."""
    server, client = command_lines(run, side("one"), side("two"))
    prefix = [*rights, urxe_program(), "run", "--"]
    serving = guest.start(within("one", [*prefix, *server]), env=ENV, limit_s=2 * LIMIT_S)
    try:
        asking = ["ss", "-Htln", f"sport = :{run.port}"] if run.port else ["cat", "/proc/net/unix"]
        ready = "LISTEN" if run.port else URXE_LISTENS
        wait_for(lambda: ready in guest.run(within("one", asking)).output, run.id)
        asked = guest.run(within("two", [*prefix, *client]), env=ENV, limit_s=LIMIT_S)
        if not run.is_done(asked.status, asked.output):
            serving.stop()
            pytest.fail(f"client, status {asked.status}: {asked.output}")
        return asked, serving.wait()
    finally:
        serving.stop()


@each(WITHIN)
@pytest.mark.parametrize("rights", RIGHTS)
def test_urxe_runs_on_the_kernel(wired_guest: Guest, rights: str, run: Run) -> None:
    key = run.id, f"{wired_guest.suite}, {rights}"
    OUTCOMES[key] = False
    _, served = both(wired_guest, run, RIGHTS[rights])
    assert run.is_done(served.status, served.output), f"server, status {served.status}: {served.output}"
    OUTCOMES[key] = True


@pytest.mark.parametrize("rights", RIGHTS)
def test_frames_are_sent_where_the_kernel_and_the_rights_are_there(wired_guest: Guest, rights: str) -> None:
    release = tuple(int(number) for number in re.findall(r"\d+", wired_guest.kernel)[:2])
    prefix = [*RIGHTS[rights], urxe_program(), "run", "--"]
    line = [*prefix, "ib_write_lat", "-d", side("one").device, "-x", "0", "-F", "-D", str(MEASURED_S)]
    serving = wired_guest.start(within("one", line), limit_s=LIMIT_S)
    try:
        asking = ["ss", "-Htln", "sport = :18515"]
        wait_for(lambda: "LISTEN" in wired_guest.run(within("one", asking)).output, "ib_write_lat")
        client = wired_guest.start(within("two", [*line, ADDRESSES["one"]]), limit_s=LIMIT_S)
        seen: dict[str, int] = {}

        def has_sent() -> bool:
            shown = json.loads(wired_guest.run(within("two", [urxe_program(), "stat", "--json"])).output)
            for process in shown["processes"]:
                seen.update(process["devices"][0]["counters"])
            return seen.get("tx_packets", 0) > MEASURED_PACKETS

        wait_for(has_sent, "ib_write_lat")
        finished = client.wait()
    finally:
        serving.stop()
    assert finished.status == 0, finished.output
    is_expected = rights == "frames" and release >= FRAMES_SINCE
    assert (seen["tx_frames"] > 0) == is_expected, seen


def test_the_table_in_the_documentation_is_what_ran() -> None:
    if len(OUTCOMES) < len(WITHIN) * len(RIGHTS) * len(EVERY):
        pytest.skip("not everything ran")
    found = table(OUTCOMES, WITHIN, WITHIN_COLUMNS)
    (BUILT / "within.md").write_text(found)
    assert found == documented("what ran within guests"), (
        f"docs/interop-runs.md has another table than {BUILT}/within.md"
    )
