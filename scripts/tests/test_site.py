"""The documents as a site: built strictly, asking nothing of other hosts, and searchable from disk."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

import site_pages

CHROMIUM = shutil.which("chromium")
#: What a browser fetches by itself: scripts, styles, pictures, frames, and what styles name.
FETCHED = re.compile(r"""<(?:script|img|iframe|source)[^>]*\ssrc="?(https?:)?//|<link[^>]*\shref="?(https?:)?//""")
FETCHED_BY_STYLES = re.compile(r"""(?:@import|url\()\s*["']?(https?:)?//""")


def paths(*names: str) -> frozenset[PurePosixPath]:
    return frozenset(map(PurePosixPath, names))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    site_pages.write(site_pages.gathered(*site_pages.tracked()), folder)
    return folder


@pytest.fixture(scope="module")
def site(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = site_pages.build(source, folder)
    assert built.returncode == 0, built.stdout
    return folder


def test_pages_outside_docs_and_files_are_brought_along_with_links_that_fit() -> None:
    files = paths("README.md", "docs/a.md", "docs/b/c.md", "nic/x/lib.rs", "nic/x/y/z.c", "bench/README.md")
    texts = {
        PurePosixPath("README.md"): "[a](docs/a.md#top) `[code](docs/a.md)`",
        PurePosixPath("docs/a.md"): "[r](../README.md) [rs](../nic/x/lib.rs) [here](#x) [c](b/c.md)",
        PurePosixPath("docs/b/c.md"): "[folder](../../nic/x) [bench](../../bench) [web](https://example.org)",
        PurePosixPath("bench/README.md"): "",
    }
    made = site_pages.gathered(files, texts)
    assert {str(place): content for place, content in made.items()} == {
        "a.md": "[r](project/README.md) [rs](project/nic/x/lib.rs.txt) [here](#x) [c](b/c.md)",
        "b/c.md": "[folder](../project/nic/x/files.txt) [bench](../project/bench/README.md) [web](https://example.org)",
        "project/README.md": "[a](../a.md#top) `[code](docs/a.md)`",
        "project/bench/README.md": "",
        "project/nic/x/files.txt": "The files of nic/x:\n\nlib.rs\ny/z.c\n",
        "project/nic/x/lib.rs.txt": site_pages.ROOT / "nic/x/lib.rs",
    }


def test_code_in_a_table_shows_its_pipes() -> None:
    row = "| `server\\|client` | a\\|b |\n`x\\|y`\n"
    made = site_pages.gathered(paths("docs/a.md"), {PurePosixPath("docs/a.md"): row})
    assert made[PurePosixPath("a.md")] == "| `server|client` | a\\|b |\n`x\\|y`\n"


@pytest.mark.slow
def test_a_broken_link_a_broken_anchor_and_a_page_of_no_list_are_refused(source: Path, tmp_path: Path) -> None:
    broken = tmp_path / "source"
    shutil.copytree(source, broken)
    with (broken / "index.md").open("a", encoding="utf-8") as page:
        page.write("\n[link](nosuch.md) [anchor](urxe.md#nosuch)\n")
    (broken / "unlisted.md").write_text("# Unlisted\n", encoding="utf-8")
    built = site_pages.build(broken, tmp_path / "site")
    assert built.returncode != 0
    for complaint in ("'nosuch.md'", "'urxe.md#nosuch'", "- unlisted.md"):
        assert complaint in built.stdout


@pytest.mark.slow
def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        assert FETCHED.search(page.read_text(encoding="utf-8")) is None, page
    for style in site.rglob("*.css"):
        assert FETCHED_BY_STYLES.search(style.read_text(encoding="utf-8")) is None, style


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make setup")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.mark.browser
@pytest.mark.slow
def test_search_works_from_disk_without_a_request(site: Path, browser: Any) -> None:
    page = browser.new_page()
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto((site / "index.html").as_uri())
    page.locator(".md-search__input").click()
    # The index takes a moment to load, and keys before that count for nothing.
    page.wait_for_function("document.querySelectorAll('iframe').length > 0")
    results = page.locator(".md-search-result__item")
    for _ in range(60):
        page.locator(".md-search__input").fill("")
        page.keyboard.type("out_of_buffer")
        page.wait_for_timeout(1000)
        if results.count():
            break
    assert "urxe.html" in "".join(results.first.locator("a").first.get_attribute("href"))
    assert [url for url in requests if not url.startswith(("file:", "data:", "blob:", "about:"))] == []
    page.close()


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_wide_tables_scroll_by_themselves_on_a_phone(site: Path, browser: Any, scheme: str) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 800}, color_scheme=scheme)
    for name in ("index.html", "performance.html", "urxe.html", "interop.html", "security.html"):
        page.goto((site / name).as_uri())
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 390, f"{name} is {wide} pixels wide"
    page.close()


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_links_can_be_told_from_what_is_around_them(site: Path, browser: Any, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed: make setup")
    page = browser.new_page(viewport={"width": 1280, "height": 800}, color_scheme=scheme)
    for name in ("index.html", "performance.html", "rdma-by-hand.html"):
        page.goto((site / name).as_uri())
        found = axe.Axe().run(page, options={"runOnly": ["color-contrast", "link-in-text-block", "image-alt"]})
        assert found.response["violations"] == [], name
    page.close()
