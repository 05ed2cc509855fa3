"""The documentation as pages: they are built, links hold, and nothing comes from outside."""

from __future__ import annotations

import functools
import http.server
import os
import posixpath
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from bench.browser import CHROMIUM, NO_CHROMIUM, launch
from bench.processes import ROOT

pytest.importorskip("material", reason="needs the dev extra")

# What a browser fetches by itself, by element and attribute; `a` it follows when it is told to.
FETCHED = {
    ("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("link", "href"),
    ("object", "data"), ("video", "src"), ("audio", "src"), ("embed", "src"), ("use", "href"),
}  # fmt: skip
# Links by which a page says what it is; a browser does not fetch them.
TOLD = {"canonical", "prev", "next", "edit"}
STYLED = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)")
# A forge makes a list of lines that follow a line of text; MkDocs runs them on.
RUN_ON = re.compile(r"<p>[^<]*\n(- |\d\. |\|)")


@dataclass
class Read(HTMLParser):
    """What a page links to, fetches, and can be linked to."""

    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = {name: value or "" for name, value in attrs}
        self.anchors |= {told[name] for name in ("id", "name") if name in told}
        if tag == "a" and "href" in told:
            self.links.append(told["href"])
        for name, value in told.items():
            if (tag, name) in FETCHED and not TOLD & set(told.get("rel", "").split()):
                self.fetched.append(value)


@functools.cache
def read(page: Path) -> Read:
    """Read a page of the site."""
    found = Read()
    found.feed(page.read_text())
    return found


def build(target: Path) -> subprocess.CompletedProcess[str]:
    """Build the site as `make site` does, in another folder."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(target)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "NO_COLOR": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site once for all tests."""
    target = tmp_path_factory.mktemp("site")
    built = build(target)
    assert built.returncode == 0, built.stderr
    return target


@pytest.fixture
def served(site: Path) -> Iterator[str]:
    """Serve the site on loopback; give its address."""
    handler = functools.partial(Silent, directory=str(site))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    server.server_close()


class Silent(http.server.SimpleHTTPRequestHandler):
    """Serves files, and does not tell of it."""

    def log_message(self, format: str, *args: object) -> None:
        """Keep a request to itself."""


def pages(site: Path) -> list[Path]:
    """Return all pages but the one that is shown for addresses which are not there."""
    return [page for page in sorted(site.rglob("*.html")) if page.name != "404.html"]


def place(page: Path, address: str) -> Path:
    """Return the file that a relative address leads to."""
    path = unquote(urlsplit(address).path)
    return page if not path else Path(posixpath.normpath(page.parent / path))


def test_every_page_of_the_documentation_is_in_the_site(site: Path) -> None:
    names = {page.relative_to(site).with_suffix(".md").as_posix() for page in pages(site)}
    written = {page.relative_to(ROOT / "docs").as_posix() for page in ROOT.glob("docs/**/*.md")}
    assert written < names
    assert {"index.md", "bench/RESULTS.md"} <= names


def test_every_link_leads_somewhere(site: Path) -> None:
    lost = []
    for page in pages(site):
        for address in read(page).links:
            if urlsplit(address).scheme or address.startswith("//"):
                continue
            target, anchor = place(page, address), unquote(urlsplit(address).fragment)
            target = target / "index.html" if target.is_dir() else target
            is_there = target.is_file() and (
                not anchor or target.suffix != ".html" or anchor in read(target).anchors
            )
            if not is_there:
                lost.append(f"{page.relative_to(site)}: {address}")
    assert not lost
    assert all(read(page).links for page in pages(site))


def test_nothing_is_loaded_from_outside(site: Path) -> None:
    outside = []
    for page in pages(site):
        fetched = [one for one in read(page).fetched if not one.startswith("data:")]
        fetched += [a or b for a, b in STYLED.findall(page.read_text()) if a[:5] != "data:"]
        assert fetched, "a page without a style sheet"
        outside += [f"{page.name}: {one}" for one in fetched if not place(page, one).is_file()]
    for sheet in site.rglob("*.css"):
        named = [a or b for a, b in STYLED.findall(sheet.read_text())]
        outside += [f"{sheet.name}: {one}" for one in named if one[:5] not in ("data:", "#")]
    assert not outside


def test_lists_and_tables_are_lists_and_tables(site: Path) -> None:
    run_on = [f"{page.name}: {one[0]}" for page in pages(site)
              for one in RUN_ON.finditer(page.read_text())]  # fmt: skip
    assert not run_on


def test_a_link_out_of_the_folder_of_pages_holds_in_the_site(site: Path) -> None:
    assert "docs/cleaner.html" not in "".join(read(site / "index.html").links)
    assert "cleaner.html" in read(site / "index.html").links
    assert "../ARCHITECTURE.html" not in read(site / "CONTRIBUTING.html").links
    assert "ARCHITECTURE.html" in read(site / "CONTRIBUTING.html").links


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM)
def test_a_browser_asks_nobody_else_and_finds_words(site: Path, served: str) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs the dev extra")
    asked: list[str] = []
    with playwright.sync_playwright() as play:
        browser = launch(play)
        page = browser.new_page()
        page.on("request", lambda request: asked.append(request.url))
        for one in pages(site):
            page.goto(served + one.relative_to(site).as_posix())
        page.goto(served)
        search = page.get_by_placeholder("Search")
        search.click()
        search.press_sequentially("tombstone")
        found = page.locator(".md-search-result__link").first
        found.wait_for()
        assert ".html" in (found.get_attribute("href") or "")
        browser.close()
    assert asked
    assert not [one for one in asked if not one.startswith((served, "data:", "blob:"))]
