"""Variants whose names say more than which program ran: under which settings, or how many of which at the same time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rocelab import peers
from rocelab.results import ParamValue

SETTINGS_MARK = ":"
"""What stands in a variant before the settings under which it ran: ``write:load=0.5``."""
_AND = "+"
_TIMES = "x"


def setting_name(variant: str, settings: Mapping[str, ParamValue]) -> str:
    """A variant under settings: ``write:load=0.5,switch.shared_shift=3``."""
    return f"{variant}{SETTINGS_MARK}{','.join(f'{name}={_spelled(value)}' for name, value in settings.items())}"


def settings_of(variant: str) -> dict[str, str]:
    """The settings that a variant ran under, by name, as they are spelled."""
    pairs = (each.partition("=") for each in variant.partition(SETTINGS_MARK)[2].split(",") if each)
    return {name: value for name, _, value in pairs}


def _spelled(value: ParamValue) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True, slots=True)
class Flows:
    """Flows of one kind in a mix."""

    count: int
    interconnect: str
    variant: str
    """With its congestion control, where it has one."""


def mix_names(mix: Sequence[Flows]) -> tuple[str, str]:
    """What samples of a mix have as interconnect and variant: ``soft-roce+tcp``, ``1xwrite+4xblocking@cubic``.

    All that have a congestion control have the same: it belongs to the link.
    """
    controls = dict.fromkeys(control for each in mix if (control := peers.control_of(each.variant)) is not None)
    variant = _AND.join(f"{each.count}{_TIMES}{peers.name_of(each.variant)}" for each in mix)
    interconnect = _AND.join(each.interconnect for each in mix)
    return interconnect, peers.with_control(variant, next(iter(controls))) if controls else variant


def mix_of(interconnect: str, variant: str) -> tuple[Flows, ...]:
    """The mix that samples with these names are of."""
    control = peers.control_of(variant)
    found = []
    for name, part in zip(interconnect.split(_AND), peers.name_of(variant).split(_AND), strict=True):
        count, _, program = part.partition(_TIMES)
        if control is not None and name in peers.OVER_TCP:
            program = peers.with_control(program, control)
        found.append(Flows(int(count), name, program))
    return tuple(found)
