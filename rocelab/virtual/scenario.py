"""Makes a scenario of the simulator from a step and the profiles it names."""

from __future__ import annotations

from typing import Any

from rocelab import profiles
from rocelab.profiles.model import bus_gbps
from rocelab.results import MESH_TEST
from rocelab.virtual.congestion import host_keys, step_bytes_per_25g
from rocelab.virtual.flow_steps import FlowsStep
from rocelab.virtual.flow_tables import FlowsTable, Setting
from rocelab.virtual.schema import LinkTable
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


def _topology(step: VirtualStep | FlowsStep) -> dict[str, Any]:
    link: LinkTable = step.network
    if link.topology == "back-to-back":
        return {"kind": "back-to-back"}
    if link.topology == "one-switch":
        return {"kind": "one-switch", "hosts": step.nodes}
    if link.topology == "fat-tree":
        return {"kind": "fat-tree", "hosts": step.nodes, "radix": link.radix}
    return {
        "kind": "leaf-spine",
        "hosts": step.nodes,
        "hosts_per_rack": link.rack_of(step.nodes),
        "leaves_per_rack": link.leaves_per_rack,
        "spines": link.spines,
        "uplinks": link.uplinks,
        "uplink_gbps": link.uplink_gbps,
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
