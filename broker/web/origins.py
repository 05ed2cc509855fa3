"""Keeps the pages of other sites out: what a browser sends for them is refused.

A browser sends requests for any page to any address, but does not let the page read the answers of
another site unless that site agrees, which nothing here does (no CORS). What is left:

    requests that change or cost something      refused by Origin and Sec-Fetch-Site
    a site whose name is made to lead here      (DNS rebinding) is the same site to a browser, and
                                                refused by the name that was asked for
"""

from __future__ import annotations

import socket
from collections.abc import Collection
from ipaddress import ip_address
from urllib.parse import urlsplit

from aiohttp import web

from broker.web.requests import Problem

_OWN_SITE = ("same-origin", "none")  # none: a person has typed the address
_SAFE_METHODS = ("GET", "HEAD")


def refuse_other_names(request: web.Request, names: Collection[str]) -> None:
    """Raise Problem for a request that asks for a name which is not this broker's.

    `names` are its own, in lower case, besides localhost and addresses. Beyond loopback names
    without a dot are, too: those are a local network's, and no site's.
    """
    asked = request.headers.get("Host")
    if asked is None:  # HTTP 1.0, which no browser speaks
        return
    try:
        name = (urlsplit(f"//{asked}").hostname or "").removesuffix(".")
        if name in ("localhost", *names) or name.endswith(".localhost"):
            return
        if name and "." not in name and ":" not in name and not _is_loopback(request):
            return
        ip_address(name.partition("%")[0])
    except ValueError:
        raise Problem(
            403,
            f"{asked} is no name of this broker: ask for localhost, or for an address, or add the "
            "name to odradek.http.hosts",
        ) from None


def refuse_other_sites(request: web.Request) -> None:
    """Raise Problem when a browser says that the request comes from a page of another site.

    A link from there to here may be followed; what it leads to cannot be read there.
    """
    origin = request.headers.get("Origin")
    is_other = origin is not None and _site_of(origin) != request.headers.get("Host")
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None and site not in _OWN_SITE:
        is_link = (
            request.method in _SAFE_METHODS
            and request.headers.get("Sec-Fetch-Mode") == "navigate"
            and request.headers.get("Sec-Fetch-Dest") == "document"
        )
        is_other |= not is_link
    if is_other:
        raise Problem(403, f"the page of {origin or 'another site'} may ask for nothing here")


def own_names(hosts: Collection[str]) -> frozenset[str]:
    """Return this machine's own name and those given, as they are compared."""
    names = (socket.gethostname(), *hosts)
    return frozenset(one.lower().removesuffix(".") for one in names if one)


def _site_of(origin: str) -> str:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""  # which no request asks for


def _is_loopback(request: web.Request) -> bool:
    transport = request.transport
    here = transport.get_extra_info("sockname") if transport is not None else None
    return here is None or ip_address(here[0].partition("%")[0]).is_loopback
