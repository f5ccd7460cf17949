"""Opens the report in Chromium: it draws, loads nothing, carries the data, and is accessible."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from rocelab.report.gallery import sections
from rocelab.report.model import RunModel
from rocelab.report.write import ReportFiles

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make setup")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed: make setup")

CHROMIUM = shutil.which("chromium")
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]
PHONE = {"width": 360, "height": 740}
DESKTOP = {"width": 1280, "height": 900}

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: apt-get install chromium"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


class Reader:
    """A page with everything it complained about and everything it asked for."""

    def __init__(self, browser: Any, files: ReportFiles, viewport: dict[str, int], scheme: str = "light") -> None:
        self.page = browser.new_page(viewport=viewport, color_scheme=scheme)
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(files.page.as_uri())
        self.page.evaluate("window.rocelab.ready")


@pytest.fixture(scope="module")
def desktop(browser: Any, files: ReportFiles) -> Iterator[Reader]:
    reader = Reader(browser, files, DESKTOP)
    yield reader
    reader.page.close()


@pytest.fixture(scope="module")
def phone(browser: Any, files: ReportFiles) -> Iterator[Reader]:
    reader = Reader(browser, files, PHONE)
    yield reader
    reader.page.close()


@pytest.fixture(scope="module")
def dark(browser: Any, files: ReportFiles) -> Iterator[Reader]:
    reader = Reader(browser, files, DESKTOP, "dark")
    yield reader
    reader.page.close()


@pytest.mark.parametrize("name", ["desktop", "phone", "dark"])
def test_it_draws_without_a_complaint_and_loads_nothing(name: str, request: pytest.FixtureRequest) -> None:
    reader: Reader = request.getfixturevalue(name)
    assert reader.complaints == []
    outside = [url for url in reader.requests if not url.startswith(("data:", "blob:"))]
    assert [url.rsplit("/", 1)[-1] for url in outside] == ["index.html"]
    charts = reader.page.locator(".chart")
    assert charts.count() == 18
    assert reader.page.locator(".chart svg").count() == charts.count()


def test_the_figures_carry_the_medians_that_were_measured(desktop: Reader, model: RunModel) -> None:
    test = model.tests[0]
    drawn = desktop.page.evaluate("window.rocelab.views['latency-direct'].data('points')")
    expected = {
        (each.label, size): spread for each in model.series("direct", test) for size, spread in each.series.spreads()
    }
    assert len(expected) == 5 * 23
    assert {(row["series"], row["size"]): row["value"] for row in drawn} == {
        key: pytest.approx(spread.median) for key, spread in expected.items()
    }
    assert {(row["series"], row["size"]): row["high"] for row in drawn} == {
        key: pytest.approx(spread.high) for key, spread in expected.items()
    }


def test_every_figure_of_the_run_is_drawn_with_data(desktop: Reader, model: RunModel) -> None:
    names = [figure.name for section in sections(model) for _, made in section.links for figure in made]
    assert len(names) == 16
    for name in names:
        points = desktop.page.evaluate(f"window.rocelab.views['{name}'].data('points').length")
        symbols = desktop.page.locator(f"#{name} .mark-symbol.role-mark path").count()
        assert points >= 2 * 23
        assert symbols == points, f"{name} has {points} points and draws {symbols}"


def test_the_ratio_figure_agrees_with_the_values(desktop: Reader, model: RunModel) -> None:
    rows = desktop.page.evaluate("window.rocelab.views['latency-ratio-direct'].data('points')")
    ratio = next(row["value"] for row in rows if row["size"] == 64 and row["series"] == "against the best TCP")
    series = {each.label: each.series for each in model.series("direct", model.tests[0])}
    expected = series["TCP busy-polling"].spread(64).median / series["Soft RoCE send"].spread(64).median
    assert ratio == pytest.approx(expected)
    assert ratio > 1.1


def test_a_switch_hides_a_series_in_all_figures_and_restores_it(desktop: Reader) -> None:
    page = desktop.page

    def drawn(name: str) -> int:
        count: int = page.locator(f"#{name} .mark-symbol.role-mark path").count()
        return count

    names = ["latency-direct", "bandwidth-ethernet-1g", "cpu-cores-direct"]
    before = [drawn(name) for name in names]
    button = page.locator(".switch", has_text="TCP blocking").first
    button.focus()
    page.keyboard.press("Enter")
    page.wait_for_function("document.querySelectorAll('#latency-direct .mark-symbol.role-mark path').length < 115")
    assert [drawn(name) for name in names] == [count - 23 for count in before]
    pressed = page.locator(".switch", has_text="TCP blocking").evaluate_all(
        "all => all.map(each => each.getAttribute('aria-pressed'))"
    )
    assert set(pressed) == {"false"}
    button.click()
    page.wait_for_function("document.querySelectorAll('#latency-direct .mark-symbol.role-mark path').length === 115")
    assert [drawn(name) for name in names] == before


@pytest.mark.parametrize("name", ["desktop", "phone"])
def test_pointing_at_a_figure_shows_the_values_there(name: str, request: pytest.FixtureRequest) -> None:
    page = request.getfixturevalue(name).page
    chart = page.locator("#latency-direct")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.move(box["x"] + box["width"] / 2 + 2, box["y"] + box["height"] / 2)
    tooltip = page.locator("#vg-tooltip-element.visible")
    tooltip.wait_for(timeout=5000)
    words = tooltip.inner_text()
    assert re.match(r"\d+ (B|KiB)\n", words)
    assert "Soft RoCE send" in words
    assert "\u00b5s (" in words
    place = tooltip.bounding_box()
    assert place is not None
    assert place["x"] >= 0
    assert place["x"] + place["width"] <= page.viewport_size["width"]
    page.mouse.move(0, 0)


@pytest.mark.parametrize("name", ["desktop", "phone"])
def test_nothing_sticks_out_sideways(name: str, request: pytest.FixtureRequest) -> None:
    page = request.getfixturevalue(name).page
    # Hidden tables can stick out too, once they are opened.
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    width, inner = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = false)")
    assert width <= inner


def test_figures_fit_a_phone(phone: Reader) -> None:
    widths = phone.page.locator(".chart svg").evaluate_all("all => all.map(each => each.getBoundingClientRect().width)")
    assert len(widths) == 18
    assert max(widths) <= 360 - 2 * 16
    assert min(widths) > 250


def _luminance(colour: str) -> float:
    channels = [int(part) for part in colour.removeprefix("rgb(").rstrip(")").split(",")]
    return sum(channels) / 3


def test_a_dark_page_for_who_prefers_it_with_figures_that_follow(browser: Any, files: ReportFiles) -> None:
    reader = Reader(browser, files, DESKTOP, "dark")
    page = reader.page
    background = "getComputedStyle(document.body).backgroundColor"
    label = "getComputedStyle(document.querySelector('#latency-direct .role-axis-label text')).fill"
    assert _luminance(page.evaluate(background)) < 40
    assert _luminance(page.evaluate(label)) > 120
    page.emulate_media(color_scheme="light")
    page.wait_for_timeout(100)
    page.evaluate("window.rocelab.ready")
    assert _luminance(page.evaluate(background)) > 240
    assert _luminance(page.evaluate(label)) < 120
    assert reader.complaints == []
    page.close()


@pytest.mark.parametrize("name", ["desktop", "phone", "dark"])
def test_axe_finds_no_accessibility_problem(name: str, request: pytest.FixtureRequest) -> None:
    page = request.getfixturevalue(name).page
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    results = axe.Axe().run(page)
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = false)")
    assert results.response["passes"], "axe ran no rule"
    found = [
        f"{violation['id']}: {violation['help']} {[node['target'] for node in violation['nodes'][:3]]}"
        for violation in results.response["violations"]
    ]
    assert found == []


def test_a_figure_says_in_words_what_it_shows(desktop: Reader) -> None:
    labels = desktop.page.locator(".picture[role=img]").evaluate_all("all => all.map(each => each.ariaLabel)")
    assert len(labels) == 18
    assert len(set(labels)) == 18
    latency = next(label for label in labels if label.startswith("One-way latency, direct"))
    assert "Soft RoCE send: 2." in latency
    assert "\u00b5s at 1 B and" in latency
    assert "at 4 MiB" in latency


def test_without_javascript_the_figures_are_pictures(browser: Any, files: ReportFiles) -> None:
    context = browser.new_context(java_script_enabled=False, viewport=PHONE)
    page = context.new_page()
    page.goto(files.page.as_uri())
    pictures = page.locator("figure img")
    assert pictures.count() == 18
    # Width on the screen: an image that could not be decoded has none of its own.
    boxes = [pictures.nth(number).bounding_box() for number in range(18)]
    assert all(box is not None and 200 < box["width"] <= 360 and box["height"] > 60 for box in boxes)
    context.close()
