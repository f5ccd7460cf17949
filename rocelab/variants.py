"""Variants whose names say more than which program ran: under which settings."""

from __future__ import annotations

from collections.abc import Mapping

from rocelab.results import ParamValue

SETTINGS_MARK = ":"
"""What stands in a variant before the settings under which it ran: ``write:load=0.5``."""


def setting_name(variant: str, settings: Mapping[str, ParamValue]) -> str:
    """A variant under settings: ``write:load=0.5,switch.shared_shift=3``."""
    return f"{variant}{SETTINGS_MARK}{','.join(f'{name}={_spelled(value)}' for name, value in settings.items())}"


def settings_of(variant: str) -> dict[str, str]:
    """The settings that a variant ran under, by name, as they are spelled."""
    pairs = (each.partition("=") for each in variant.partition(SETTINGS_MARK)[2].split(",") if each)
    return {name: value for name, _, value in pairs}


def _spelled(value: ParamValue) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)
