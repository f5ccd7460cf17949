"""Profiles of hardware and software for simulations: adapters, hosts, switches and communication stacks, as data."""

from rocelab.profiles.model import (
    Adapter,
    Host,
    Pcie,
    Port,
    ProfileError,
    Stack,
    Switch,
    adapter,
    adapters,
    host,
    hosts,
    stack,
    stacks,
    switch,
    switches,
)

__all__ = [
    "Adapter",
    "Host",
    "Pcie",
    "Port",
    "ProfileError",
    "Stack",
    "Switch",
    "adapter",
    "adapters",
    "host",
    "hosts",
    "stack",
    "stacks",
    "switch",
    "switches",
]
