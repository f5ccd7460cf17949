"""Makes a scenario of the simulator from a step and the profiles it names."""

from __future__ import annotations

import itertools
from typing import Any

from rocelab import profiles
from rocelab.profiles.model import bus_gbps
from rocelab.results import MESH_TEST
from rocelab.virtual.congestion import host_keys, step_bytes_per_25g
from rocelab.virtual.flow_steps import FlowsStep
from rocelab.virtual.flow_tables import FlowsTable, Setting
from rocelab.virtual.msccl.schedule import Schedule
from rocelab.virtual.schema import Incident, LinkTable, is_collective
from rocelab.virtual.steps import VirtualStep, messages_of

#: Data that a queue pair of hardware may have in flight: the send queue is what limits it.
_WINDOW_BYTES = 1 << 20
#: Open MPI's MPI_Alltoall sends smaller blocks to all others at once, and these step by step (its
#: decision function of fixed rules, coll/tuned, up to release 4.0).
_PAIRWISE_BYTES = 3_000
#: No simulation goes on for longer.
TIME_LIMIT_NS = 60_000_000_000


def scenario(step: VirtualStep | FlowsStep) -> dict[str, Any]:
    """What rocelab-virtual reads. Raises KeyError, with the place, if a setting is of nothing that is there."""
    tap = None if isinstance(step, FlowsStep) else step.test.tap
    made: dict[str, Any] = {
        "seed": step.seed,
        "host": _host(step),
        "topology": _topology(step),
        "switch": _switch(step),
        "propagation_ns": step.network.propagation_ns,
        "traffic": _flows(step.test, step) if isinstance(step, FlowsStep) else _traffic(step),
        "incidents": [_incident(each) for each in step.network.incidents],
        "series_ns": None if step.test.series_us is None else step.test.series_us * 1000,
        "time_limit_ns": TIME_LIMIT_NS,
    }
    if tap is not None:
        place = {"host": [tap.host, tap.port]} if tap.host is not None else {"switch": [tap.switch, tap.port]}
        made["tap"] = {"at": place, "packets": tap.packets}
    if isinstance(step, FlowsStep):
        for name, value in step.settings.items():
            _set(made, name, value)
    return made


def _set(made: dict[str, Any], name: str, value: Setting) -> None:
    """Gives a value that is there another one."""
    *path, last = name.split(".")
    table: Any = made
    for part in path:
        table = table.get(part) if isinstance(table, dict) else None
    if not isinstance(table, dict) or last not in table or isinstance(table[last], dict):
        raise KeyError(name)
    table[last] = value


def _flows(test: FlowsTable, step: FlowsStep) -> dict[str, Any]:
    pattern = {"uniform": "mesh"}.get(test.pattern, test.pattern)
    return {
        "kind": "flows",
        "pattern": {"kind": pattern},
        "operation": step.how.operation,
        "load": step.load,
        "sizes": [[size_bytes, percent / 100] for size_bytes, percent in test.points()],
        "flows": test.flows,
        "warmup_flows": test.warmup_flows,
        "incast": None if test.incast is None else test.incast.model_dump(),
    }


def _host(step: VirtualStep | FlowsStep) -> dict[str, Any]:
    adapter = step.adapter
    stack = profiles.stack(step.test.stacks[adapter.service])
    made = host_part(adapter, profiles.host(step.host), stack)
    if adapter.service == "rdma":
        made.update(host_keys(step.network))
    if step.network.path_mtu_bytes is not None and adapter.service == "rdma":
        made["mtu_bytes"] = step.network.path_mtu_bytes
    return made


def host_part(adapter: profiles.Adapter, host: profiles.Host, stack: profiles.Stack) -> dict[str, Any]:
    """A host, without congestion control."""
    software = adapter.software
    return {
        "link": adapter.port.kind,
        "rate_gbps": adapter.port.data_rate_gbps,
        "delimiter_bytes": adapter.port.delimiter_bytes,
        "ports": adapter.port.ports,
        "mtu_bytes": adapter.port.mtu_bytes,
        "pcie": {
            "rate_gbps": bus_gbps(adapter, host),
            "payload_bytes": host.payload_bytes,
            "completion_bytes": host.completion_bytes,
            "read_request_bytes": host.read_request_bytes,
            "read_latency_ns": host.read_latency_ns,
        },
        "software": None if software is None else software.model_dump(),
        "packet_ps": round(1e6 / adapter.message_rate_mps),
        "send_ns": adapter.send_ns,
        "receive_ns": adapter.receive_ns,
        "nak_ns": adapter.nak_ns,
        "posted_ns": 0 if software else host.posted_ns,
        "buffer_gbps": adapter.buffer_gbps,
        "gather_bytes": adapter.gather_bytes,
        "fetches_requests": adapter.fetches_requests,
        "inline_bytes": stack.inline_bytes,
        "window_bytes": _WINDOW_BYTES,
        "stack": {
            "send_ns": stack.send_ns,
            "receive_ns": stack.receive_ns,
            "latency_ns": stack.latency_ns,
            "copy_gbps": stack.copy_gbps if adapter.service == "sockets" else None,
            "window_bytes": stack.window_bytes,
            "eager_gbps": stack.copy_gbps if adapter.service == "rdma" else None,
            "eager_bytes": stack.copied_bytes,
        },
    }


def _switch(step: VirtualStep | FlowsStep) -> dict[str, Any] | None:
    link = step.network
    if link.topology == "back-to-back":
        return None
    made = switch_part(link.switch_for(step.adapter), pfc=link.pfc, ecn=link.ecn, hash_by=link.hash)
    step_bytes = step_bytes_per_25g(link)
    if link.ecn and step_bytes is not None:
        made["ecn"] = {
            "min_bytes_per_25g": step_bytes,
            "max_bytes_per_25g": step_bytes,
            "max_probability": 1.0,
        }
    return made


def switch_part(
    switch: profiles.Switch, *, pfc: bool = True, ecn: bool = False, hash_by: str = "ports"
) -> dict[str, Any]:
    """A switch, with what a study says of flow control and marking by the switch's profile."""
    is_ethernet = switch.kind == "ethernet"
    marks = ecn and switch.ecn_min_bytes_per_25g is not None
    return {
        "cut_through": switch.forwarding == "cut-through",
        "latency_ns": switch.latency_ns,
        "buffer_bytes": switch.buffer_bytes,
        "port_reserve_bytes": switch.port_reserve_bytes,
        "shared_shift": switch.shared_shift,
        "lossy_bytes": switch.lossy_bytes,
        "pfc": pfc and is_ethernet,
        "headroom_delay_ns": switch.headroom_delay_ns,
        "ecn": {
            "min_bytes_per_25g": switch.ecn_min_bytes_per_25g,
            "max_bytes_per_25g": switch.ecn_max_bytes_per_25g,
            "max_probability": switch.ecn_max_probability,
        }
        if marks
        else None,
        "hash": hash_by,
    }


#: Keys of a link that a topology is made of, named as in a scenario.
_TOPOLOGY_KEYS = {
    "one-switch": (),
    "leaf-spine": ("leaves_per_rack", "spines", "uplinks", "uplink_gbps"),
    "fat-tree": ("radix", "hosts_per_edge"),
    "dragonfly": ("hosts_per_switch", "switches_per_group", "global_cables", "global_gbps"),
    "rails": ("rails", "nodes_per_group", "spines", "uplinks", "uplink_gbps"),
}


def _topology(step: VirtualStep | FlowsStep) -> dict[str, Any]:
    link: LinkTable = step.network
    if link.topology == "back-to-back":
        return {"kind": "back-to-back"}
    if link.topology == "listed":
        return _listed(step.nodes, link)
    made: dict[str, Any] = {"kind": link.topology, "hosts": step.nodes}
    if link.topology == "leaf-spine":
        made["hosts_per_rack"] = link.rack_of(step.nodes)
    return made | {key: getattr(link, key) for key in _TOPOLOGY_KEYS[link.topology]}


def _listed(hosts: int, link: LinkTable) -> dict[str, Any]:
    """Every cable of a list, of which an entry may name several hosts and switches."""
    cables: list[dict[str, Any]] = [
        {"ends": [one, other], "gbps": cable.gbps}
        for cable in link.cables
        for one, other in itertools.product(_ends(cable.ends[0]), _ends(cable.ends[1]))
    ]
    switches = [end["switch"] for cable in cables for end in cable["ends"] if "switch" in end]
    return {"kind": "listed", "hosts": hosts, "switches": max(switches, default=-1) + 1, "cables": cables}


def _ends(name: str) -> list[dict[str, int]]:
    kind, _, numbers = name.partition(" ")
    first, _, last = numbers.partition("-")
    return [{kind: number} for number in range(int(first), int(last or first) + 1)]


def _incident(incident: Incident) -> dict[str, Any]:
    place = {"host": incident.host} if incident.host is not None else {"switch": incident.switch}
    victim: dict[str, Any] = {"switch": incident.switch} if incident.what == "switch" else {incident.what: place}
    return {
        "victim": victim,
        "at_ns": incident.at_us * 1000,
        "until_ns": None if incident.until_us is None else incident.until_us * 1000,
        "notice_ns": incident.notice_us * 1000,
    }


def _traffic(step: VirtualStep) -> dict[str, Any]:
    test = step.test
    if test.test == "latency":
        return {
            "kind": "ping-pong",
            "size_bytes": step.size_bytes,
            "iterations": test.iterations,
            "warmup": 1,
            "rails": step.how.rails,
        }
    if test.test == MESH_TEST and test.level == "mpi":
        return {
            "kind": "alltoall",
            "size_bytes": step.size_bytes,
            "algorithm": "pairwise" if step.size_bytes >= _PAIRWISE_BYTES else "linear",
            "iterations": test.messages or 1,
            "one_port": step.how.one_port,
        }
    if test.file is not None:
        return {"kind": "messages", "operation": "send", "messages": _messages(test.file.schedule, step)}
    if is_collective(test.test):
        return {
            "kind": "collective",
            "algorithm": test.test,
            "size_bytes": step.size_bytes,
            "ranks": test.ranks,
            "stride": test.stride,
            "chunk_bytes": test.chunk_bytes,
        }
    over_nodes = {"mesh": "mesh", "incast": "incast", "permutation": "permutation"}
    both_ways = test.test in ("bidirectional-bandwidth", "bibw")
    pattern = over_nodes.get(test.test) or ("both-ways" if both_ways else "pair")
    is_timed = test.test in over_nodes
    return {
        "kind": "streams",
        "pattern": {"kind": pattern},
        "operation": step.how.operation,
        "size_bytes": step.size_bytes,
        "queue_pairs": test.queue_pairs,
        "depth": 1 if step.adapter.service == "sockets" else test.depth,
        "messages": None if is_timed else messages_of(step),
        "warmup_ns": test.warmup_us * 1000,
        "measured_ns": test.measured_us * 1000,
        "one_port": step.how.one_port,
    }


def _messages(schedule: Schedule, step: VirtualStep) -> list[dict[str, Any]]:
    """Those of all groups, which begin at the same time."""
    stride, ranks = step.test.stride, schedule.ranks
    chunk_bytes = schedule.chunk_bytes(step.size_bytes)
    made: list[dict[str, Any]] = []
    for group in range(step.nodes // ranks):
        first, before = group // stride * ranks * stride + group % stride, len(made)
        made += [
            {
                "from": first + message.sender * stride,
                "to": first + message.receiver * stride,
                "channel": message.channel,
                "size_bytes": message.chunks * chunk_bytes,
                "after": [before + needed for needed in message.after],
            }
            for message in schedule.messages
        ]
    return made
