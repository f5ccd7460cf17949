"""What a verbs program is told about the RDMA device that it has to use."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DevicePort:
    """One port of a device, and the address on it."""

    device: str
    """Its name, such as ``mlx5_0``."""
    number: int = 1
    gid_index: int | None = None
    """Index of the GID to use. None: the port has an address without one, as InfiniBand's has."""
