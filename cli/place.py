"""Where a command goes: to the brokers that an option, the environment or a profile names.

    -b of the command, else -b before it, else -X or --client-config, else the profile that
    --profile names, else ODRADEK_BOOTSTRAP_SERVERS, else the profile that ODRADEK_PROFILE names or
    the current one, else this machine

The schema registry is that of the profile that --profile names, else ODRADEK_SCHEMA_REGISTRY, else
that of the profile that counts.

A profile that was named (--profile, ODRADEK_PROFILE) gives its other properties in any case. The
current one counts as a whole: its password goes to no address that was given elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from odradek.cli.client_config import ClientConfigError, client_properties
from odradek.cli.profiles import SERVERS, Profile, Profiles
from odradek.cli.refusals import CommandError
from odradek.dataclass import dataclass

if TYPE_CHECKING:
    from odradek.cli.client import Admin

DEFAULT_ADDRESS = "127.0.0.1:9092"
DEFAULT_URL = "http://127.0.0.1:9308"  # metrics.listener's default
ENVIRONMENT = "ODRADEK_BOOTSTRAP_SERVERS"
URL_ENVIRONMENT = "ODRADEK_URL"
REGISTRY_ENVIRONMENT = "ODRADEK_SCHEMA_REGISTRY"
PROFILE_ENVIRONMENT = "ODRADEK_PROFILE"

_LISTENER, _CERTIFICATE = "metrics.listener", "odradek.http.tls.certificate"
_ANY_HOST = ("", "0.0.0.0", "[::]", "::")  # noqa: S104 - compared with, not bound to


@dataclass(frozen=True, slots=True)
class Place:
    """Properties of a client, the URLs that are known, and whether the brokers were named."""

    properties: Mapping[str, str]
    url: str | None = None
    is_named: bool = True
    registry: str | None = None


def find_place(
    given: str | None = None, pairs: Iterable[str] = (), file: Path | None = None
) -> Place:
    """Return where the command goes; `given` is its own -b. Raises CommandError."""
    try:
        own = client_properties(file, pairs)
    except ClientConfigError as error:
        raise CommandError(str(error)) from error
    address = given or _before_command("bootstrap_servers") or own.get(SERVERS)
    address = address or _given_profile().servers or os.environ.get(ENVIRONMENT)
    profile = _profile(address)
    found = address or profile.servers
    properties = {**profile.properties, **own, SERVERS: found or DEFAULT_ADDRESS}
    registry = _given_profile().registry or os.environ.get(REGISTRY_ENVIRONMENT)
    return Place(properties, profile.url, found is not None, registry or profile.registry)


def find_url(given: str | None) -> str:
    """Return the URL of a broker's HTTP listener; brokers that were named are asked for it.

    Raises CommandError.
    """
    profile = _given_profile()
    is_elsewhere = profile.servers or _before_command("bootstrap_servers")
    found = given or profile.url or (None if is_elsewhere else os.environ.get(URL_ENVIRONMENT))
    if found:
        return found
    place = find_place()
    if place.url is not None:
        return place.url
    if not place.is_named:
        return DEFAULT_URL
    from odradek.cli.client import Connection

    return _asked(Connection(place.properties).admin())


def _asked(admin: Admin) -> str:
    from odradek.cli.settings import describe_settings

    number = str(admin.brokers[0])
    settings = describe_settings(admin, "broker", [number])[number]
    listener = settings[_LISTENER].value if _LISTENER in settings else None
    host, _, port = (listener or "").rpartition(":")
    if not port or port == "0":
        address = admin.connection.address
        raise CommandError(
            f"the broker at {address} has no {_LISTENER}: name the URL of an Odradek with --url"
        )
    certificate = settings.get(_CERTIFICATE)
    scheme = "https" if certificate and certificate.value else "http"
    return f"{scheme}://{admin.hosts[int(number)] if host in _ANY_HOST else host}:{port}"


def _given_profile() -> Profile:
    """Return the profile that --profile names; an empty one without it."""
    name = _before_command("profile")
    return Profiles().named(name) if name else Profile()


def _profile(address: str | None) -> Profile:
    """Return the profile that counts; an empty one if none does."""
    name = _before_command("profile") or os.environ.get(PROFILE_ENVIRONMENT)
    if name:
        return Profiles().named(name)
    return (None if address else Profiles().chosen()) or Profile()


def _before_command(option: str) -> str | None:
    """Return the value of an option that stands before the command."""
    context = click.get_current_context(silent=True)
    value = None if context is None else context.find_root().params.get(option)
    return value if isinstance(value, str) else None
