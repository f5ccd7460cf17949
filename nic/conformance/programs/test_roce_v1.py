"""RoCE v1 between two nodes, as Wireshark reads it on the wire, and in urxe's own captures."""

from __future__ import annotations

import ipaddress
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from rocelab.fabric import emulated
from rocelab.fabric.base import FabricError, LinkProfile, Running
from rocelab.launch.namespace import NamespaceLauncher
from rocelab.tools.interconnects import urxe

from .matrix import HERE
from .running import LINK, LINK_MTU_BYTES

LIMIT_S = 60.0
ETHER_TYPE = "0x8915"
#: Programs, and opcodes that they send or are answered with (IBTA vol 1, table 38).
PROGRAMS = {
    "ibv_rc_pingpong -c -n 20 -g 32": {0x00, 0x02},
    "ibv_uc_pingpong -c -n 20 -g 33": {0x20, 0x22},
    "ibv_ud_pingpong -c -n 20 -g 32": {0x64},
    "ib_write_lat -F -n 20 -s 3000 -x 33": {0x0A},
    "ib_read_lat -F -n 20 -x 32": {0x0C, 0x10},
    "ib_atomic_lat -F -n 20 -x 32": {0x12, 0x14},
}

pytestmark = [pytest.mark.fabric, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def fabric() -> Iterator[emulated.EmulatedFabric]:
    for program in ("tshark", "ibv_rc_pingpong", "ib_write_lat"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not there: `make setup-packages`")
    try:
        made = emulated.up([LinkProfile(LINK, "bridge", mtu_bytes=LINK_MTU_BYTES)])
    except FabricError as error:
        pytest.skip(f"no emulated fabric on this machine: {error}")
    with made:
        yield made


def tshark(capture: Path, *options: str) -> list[list[str]]:
    argv = ["tshark", "-n", "-r", str(capture), *options]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=LIMIT_S)
    return [line.split("\t") for line in done.stdout.splitlines()]


def fields(capture: Path, names: Sequence[str]) -> list[list[str]]:
    return tshark(capture, "-T", "fields", *(word for name in names for word in ("-e", name)))


def test_wireshark_reads_what_is_on_the_wire(fabric: emulated.EmulatedFabric, tmp_path: Path) -> None:
    wire, own = tmp_path / "wire.pcap", tmp_path / "own.pcapng"
    launcher = NamespaceLauncher(fabric)
    client = fabric.nodes[0]
    argv = [sys.executable, str(HERE / "frames.py"), client.interfaces[LINK], ETHER_TYPE, str(wire)]
    listening = launcher.start(client, argv)
    wait_until_it_listens(listening)
    for program in PROGRAMS:
        run_both_ends(fabric, launcher, program.split(), own)
    listening.stop()

    names = ("eth.type", "infiniband.grh.ipver", "infiniband.grh.nxthdr", "infiniband.bth.opcode")
    seen = fields(wire, names)
    assert {tuple(frame[:3]) for frame in seen} == {(ETHER_TYPE, "6", "27")}
    assert {int(frame[3]) for frame in seen} >= set().union(*PROGRAMS.values())
    assert not tshark(wire, "-Y", '_ws.malformed || _ws.expert.severity == "Error"')
    # urxe's own capture has the same frames: link addresses, route header, and all behind that the
    # ICRC covers.
    ethernet = ("frame.len", "eth.src", "eth.dst")
    route = (f"infiniband.grh.{name}" for name in ("sgid", "dgid", "tclass", "flowlabel", "hoplmt", "paylen"))
    same = (*ethernet, *route, "infiniband.bth.psn", "infiniband.invariant.crc")
    captured, passed = Counter(map(tuple, fields(own, same))), Counter(map(tuple, fields(wire, same)))
    assert not captured - passed
    # What comes when a program has ended is on the wire alone.
    gids = {f"::ffff:{client.addresses[LINK]}", str(ipaddress.ip_address(client.addresses6[LINK]))}
    assert not gids & {frame[len(ethernet)] for frame in passed - captured}


def wait_until_it_listens(listening: Running) -> None:
    deadline_s = time.monotonic() + LIMIT_S
    while "listening" not in listening.output()[0]:
        assert listening.poll() is None, listening.output()
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def run_both_ends(
    fabric: emulated.EmulatedFabric, launcher: NamespaceLauncher, words: Sequence[str], capture: Path
) -> None:
    client, server = fabric.nodes[:2]
    run = [urxe().name, "run", "--roce-v1"]
    program = [*words, "-d", f"urxe_{server.interfaces[LINK]}"]
    serving = launcher.start(server, [*run, "--", *program])
    launcher.wait_until_listening(server, serving, 18515, timeout_s=LIMIT_S)
    argv, env = [*run, "--", *program, server.addresses[LINK]], {"URXE_PCAP": str(capture)}
    for finished in (launcher.start(client, argv, env=env).wait(LIMIT_S), serving.wait(LIMIT_S)):
        assert finished.exit_status == 0, finished.stdout + finished.stderr
