"""The addresses that a schema registry may have, for the broker's option and the client alike."""

from __future__ import annotations

from urllib.parse import urlsplit


def registry_url_problem(url: str) -> str | None:
    """Return why a URL cannot be that of a schema registry, None if it can; show no password."""
    try:
        parts = urlsplit(url)
        is_right = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_right = False
    is_right = is_right and url.isascii() and url.isprintable() and " " not in url
    if is_right and parts.username is not None:
        return "the address of the schema registry has a user in it: name it apart"
    if not is_right or parts.query or parts.fragment:
        shown = "this" if "@" in url else url  # perhaps with a password
        return f"{shown} is not the address of a schema registry: http://HOST:PORT"
    return None
