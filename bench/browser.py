"""The browser in which pictures are taken and the page is tested: Debian's chromium."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Playwright

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
NO_CHROMIUM = "no browser: apt-get install chromium"


def launch(play: Playwright) -> Browser:
    """Start a browser without a window."""
    # It runs as root where tests do, in a container: the sandbox does not work there.
    return play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])


def unlock(page: Page, token: str) -> None:
    """Fill in the admin token, once the page asks for it."""
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Token").fill(token)
    dialog.get_by_role("button", name="Unlock").click()
