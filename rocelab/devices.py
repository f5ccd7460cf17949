"""What a verbs program is told about the RDMA device that it has to use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

#: What the packets of urxe's devices are.
UrxeTransport = Literal["roce-v2", "roce-v1", "iwarp"]
#: Of urxe's devices: the GID of RoCE v1 of an address stands so many places behind that of RoCE v2.
ROCE_V1_DISTANCE: Final = 32


@dataclass(frozen=True, slots=True)
class DevicePort:
    """One port of a device, and the address on it."""

    device: str
    """Its name, such as ``mlx5_0``."""
    number: int = 1
    gid_index: int | None = None
    """Index of the GID to use. None: the port has an address without one, as InfiniBand's has."""
