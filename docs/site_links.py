"""A hook of MkDocs that makes the repository's links work in the built pages.

A page links to a file by its path in the repository, as a forge reads it. The site has docs/ as
its root, README.md as its first page, and the few pages from elsewhere at their own paths. A link
to any other file becomes plain text, because the site does not have the file. A link to a missing
file stays unchanged, and fails the strict build.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_FIRST_PAGE = "README.md"
# Pages outside docs/ that belong to the site.
_ELSEWHERE = ("bench/RESULTS.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
_ICON = "broker/web/page/icon.svg"
_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s#:]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie outside docs/, and the broker's icon."""
    root = Path(config.docs_dir).parent
    for path in (_FIRST_PAGE, *_ELSEWHERE):
        files.append(File.generated(config, _in_site(path), abs_src_path=str(root / path)))
    icon = str(root / _ICON)
    files.append(File.generated(config, "images/icon.svg", abs_src_path=icon))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn each link to a file of the repository into a link to its path in the site."""
    root = Path(config.docs_dir).parent
    here = page.file.src_uri
    source = Path(page.file.abs_src_path or "").relative_to(root).as_posix()

    def turned(link: re.Match[str]) -> str:
        text, path, anchor = link.groups()
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        if files.get_file_from_path(_in_site(target)) is not None:
            place = posixpath.relpath(_in_site(target), posixpath.dirname(here))
            return f"[{text}]({place}{anchor or ''})"
        is_ours = (root / target).exists() and not target.startswith("docs/")
        return text if is_ours else link[0]

    return _LINK.sub(turned, markdown)


def _in_site(path: str) -> str:
    """Return the path in the site of a file of the repository that the site has."""
    return "index.md" if path == _FIRST_PAGE else path.removeprefix("docs/")
