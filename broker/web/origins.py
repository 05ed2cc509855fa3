"""Refuses the requests that a browser sends for the pages of other sites.

A browser sends requests for any page to any address, but the page may not read the answers of
another site unless that site agrees, which no answer here does (no CORS). Two cases remain:

    requests that change or cost something      refused by Origin and Sec-Fetch-Site
    a name of another site that resolves here   (DNS rebinding) is the same site to a browser, and
                                                refused by the name in the header Host
"""

from __future__ import annotations

import socket
from collections.abc import Collection
from ipaddress import ip_address
from urllib.parse import urlsplit

from aiohttp import web

from odradek.broker.web.requests import Problem

_OWN_SITE = ("same-origin", "none")  # none: a person typed the address
_SAFE_METHODS = ("GET", "HEAD")


def refuse_other_names(request: web.Request, names: Collection[str]) -> None:
    """Raise Problem for a request whose host is not a name of this broker.

    `names` are its names in lower case; localhost and addresses are allowed, too. Names without
    a dot are allowed beyond loopback: they belong to a local network, not to a site.
    """
    asked = request.headers.get("Host")
    if asked is None:  # HTTP 1.0, which no browser uses
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
            f"{asked} is not a name of this broker: use localhost or an address, or add the name "
            "to odradek.http.hosts",
        ) from None


def refuse_other_sites(request: web.Request) -> None:
    """Raise Problem when a browser says that the request comes from a page of another site.

    A browser may follow a link from there to here; the other page cannot read the answer.
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
        raise Problem(403, f"pages of {origin or 'another site'} may not send requests here")


def own_names(hosts: Collection[str]) -> frozenset[str]:
    """Return this machine's name and other given names, in the form for comparison."""
    names = (socket.gethostname(), *hosts)
    return frozenset(one.lower().removesuffix(".") for one in names if one)


def _site_of(origin: str) -> str:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""  # equals no host of a request


def _is_loopback(request: web.Request) -> bool:
    transport = request.transport
    here = transport.get_extra_info("sockname") if transport is not None else None
    return here is None or ip_address(here[0].partition("%")[0]).is_loopback
