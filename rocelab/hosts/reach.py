"""Whether hosts can reach each other over their rails by TCP and UDP: each the next one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rocelab.fabric.base import LaunchError, Node
from rocelab.hosts.check import Finding
from rocelab.hosts.fabric import HostsFabric
from rocelab.hosts.launcher import PORT_FIRST, PORTS, HostsLauncher
from rocelab.hosts.running import HostRunning

_LIMIT_S: Final = 5
_SERVER: Final = """
import select, socket, sys
port, limit_s = int(sys.argv[1]), int(sys.argv[2])
tcp, udp = socket.socket(), socket.socket(type=socket.SOCK_DGRAM)
tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
udp.bind(("", port))
tcp.bind(("", port))
tcp.listen()
left = {tcp, udp}
while left:
    ready = select.select(list(left), [], [], 3 * limit_s)[0]
    if not ready:
        break
    for each in ready:
        if each is tcp:
            tcp.accept()[0].sendall(b"x")
            left.discard(tcp)
        else:
            udp.sendto(b"x", udp.recvfrom(10)[1])
"""
_CLIENT: Final = """
import socket, sys
address, port, limit_s = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
def tcp():
    with socket.create_connection((address, port), limit_s) as end:
        end.recv(1)
def udp():
    with socket.socket(type=socket.SOCK_DGRAM) as end:
        end.settimeout(limit_s / 5)
        end.connect((address, port))
        for left in range(4, -1, -1):
            try:
                end.send(b"x")
                end.recv(1)
                return
            except OSError:
                if not left:
                    raise
for name, tried in (("TCP", tcp), ("UDP", udp)):
    try:
        tried()
    except OSError as error:
        print(name + ": " + str(error))
"""


def findings(fabric: HostsFabric, launcher: HostsLauncher) -> Iterator[Finding]:
    """Every pair of neighbours that does not get through. All hosts of a rail try at the same time."""
    for rail in fabric.rails.values():
        if rail.has_addresses:
            yield from _of_rail(fabric, launcher, rail.id)


def _of_rail(fabric: HostsFabric, launcher: HostsLauncher, rail: str) -> Iterator[Finding]:
    ring = [*zip(fabric.nodes, (*fabric.nodes[1:], fabric.nodes[0]), strict=True)]
    started: list[tuple[Node, Node, HostRunning, HostRunning]] = []
    try:
        for client, server in ring:
            port = str(launcher.free_ports(server, 1)[0])
            listening = _python(fabric, launcher, server, _SERVER, port, str(_LIMIT_S))
            launcher.wait_until_listening(server, listening, int(port), timeout_s=30.0)
            trying = _python(fabric, launcher, client, _CLIENT, server.addresses[rail], port, str(_LIMIT_S))
            started.append((client, server, listening, trying))
        for client, server, _, trying in started:
            said = trying.wait(6.0 * _LIMIT_S)
            for line in (said.stdout + said.stderr).strip().splitlines():
                yield Finding(
                    "wrong",
                    (client.name,),
                    f"{server.name} ({server.addresses[rail]}) cannot be reached over {rail} by {line}",
                    f"Is there a firewall? Measured programs use ports {PORT_FIRST} to {PORT_FIRST + PORTS - 1}, and "
                    "Soft RoCE UDP ports from 4791 and above",
                )
    except LaunchError as failure:
        yield Finding("wrong", (fabric.nodes[0].name,), f"what is reached over {rail} cannot be tried: {failure}")
    finally:
        for _, _, listening, trying in started:
            trying.stop()
            listening.stop()


def _python(fabric: HostsFabric, launcher: HostsLauncher, node: Node, text: str, *words: str) -> HostRunning:
    python = fabric.sessions[node.name].introduction.result()["python"]
    return launcher.start(node, [python, "-I", "-c", text, *words])
