"""Charts to SVG, PNG and JavaScript, by vl-convert: no browser and no network."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import altair as alt
import vl_convert

_FONT = "DejaVu Sans, Liberation Sans, Arial, sans-serif"
_PAGE_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif"
_VEGA_LITE = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
PNG_SCALE = 2


def theme(*, dark: bool, font: str = _PAGE_FONT) -> dict[str, Any]:
    """The Vega-Lite configuration of a light or a dark page."""
    ink, muted, grid = ("#e6edf3", "#a3aebb", "#2d3640") if dark else ("#1c2430", "#4c5866", "#e3e8ee")
    return {
        "background": None,
        "font": font,
        "view": {"stroke": None},
        "axis": {
            "labelColor": muted, "titleColor": muted, "titleFontWeight": "normal", "labelFontSize": 11,
            "titleFontSize": 12, "gridColor": grid, "domainColor": grid, "tickColor": grid, "titlePadding": 8,
        },
        "legend": {"labelColor": ink, "labelFontSize": 12, "symbolStrokeWidth": 2, "symbolSize": 80},
        "header": {"labelColor": ink},
        "title": {"color": ink, "subtitleColor": muted},
        # The page says what a figure shows, once; hundreds of labelled marks would only be in the
        # way.
        "aria": False,
    }  # fmt: skip


def _themed(spec: dict[str, Any]) -> dict[str, Any]:
    themed = copy.deepcopy(spec)
    themed["config"] = themed.get("config", {}) | theme(dark=False, font=_FONT) | {"background": "white"}
    themed["padding"] = 12
    return themed


def svg(spec: dict[str, Any]) -> str:
    """A figure as SVG, on white."""
    return vl_convert.vegalite_to_svg(_themed(spec), vl_version=_VEGA_LITE)


def png(drawn: str) -> bytes:
    """A figure that was drawn as SVG, at twice its size in CSS pixels."""
    return vl_convert.svg_to_png(drawn, scale=PNG_SCALE)


@cache
def javascript() -> str:
    """Vega, Vega-Lite and Vega-Embed in one script that sets ``window.vegaEmbed``."""
    bundle = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=_VEGA_LITE)
    # Inside a <script> element, this alone could end it.
    return bundle.replace("</script", "<\\/script")
