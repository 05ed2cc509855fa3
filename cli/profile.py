"""odradek profile: names clusters, so that commands need no addresses and passwords."""

from __future__ import annotations

import click

from odradek.cli.answer import print_json
from odradek.cli.arguments import SERVERS_NAMES, pairs_option
from odradek.cli.client import json_option
from odradek.cli.profiles import SERVERS, Profile, Profiles, check_name
from odradek.cli.refusals import CommandError
from odradek.cli.tables import print_rows

_HIDDEN = "(hidden)"
# In the names of librdkafka's properties that hold secrets.
_SECRETS = ("password", "secret", "token", "key.pem", "sasl.oauthbearer.config")


@click.group()
def profile() -> None:
    """Name clusters, and choose the one that commands go to.

    Commands go to the current profile unless their options or the environment name another
    place. `odradek --profile NAME …` goes to another profile once.
    """


@profile.command("set")
@click.argument("name")
@click.option(*SERVERS_NAMES, "servers", metavar="HOST:PORT,…", help="The brokers' addresses.")
@click.option("--url", help="The URL of a broker's metrics.listener, else they are asked.")
@click.option("--registry", metavar="URL", help="The URL of the schema registry.")
@pairs_option("-X", "pairs", help="A property of librdkafka; an empty value removes it.")
def set_profile(
    name: str,
    servers: str | None,
    url: str | None,
    registry: str | None,
    pairs: tuple[tuple[str, str], ...],
) -> None:
    """Create a profile, or change it; the first one becomes the current one.

    Example: odradek profile set production -b broker-1:9092 -X sasl.username=ann
    """
    check_name(name)
    profiles = Profiles()
    changed = profiles.by_name.setdefault(name, Profile())
    if servers is not None:
        changed.properties[SERVERS] = servers
    if url is not None:
        changed.url = url or None
    if registry is not None:
        changed.registry = registry or None
    for key, value in pairs:
        changed.properties[key] = value
    changed.properties = {key: value for key, value in changed.properties.items() if value}
    if changed.servers is None:
        raise CommandError(f"profile {name} has no addresses of brokers: give them with -b")
    urls = (changed.url or "", changed.registry or "")
    for text in (*changed.properties, *changed.properties.values(), *urls):
        if not text.isprintable():
            raise CommandError(f"{text!r} cannot be in a profile: it has unprintable characters")
    if len(profiles.by_name) == 1:
        profiles.current = name
    profiles.store()
    click.echo(f"{name}: {'set, and current' if profiles.current == name else 'set'}")


@profile.command("list")
@json_option
def list_profiles(as_json: bool) -> None:
    """List all profiles; an asterisk marks the current one.

    Example: odradek profile list
    """
    profiles = Profiles()
    found = [_document(profiles, name) for name in sorted(profiles.by_name)]
    if as_json:
        return print_json({"profiles": found})
    if not found:
        click.echo("There are no profiles: odradek profile set NAME -b HOST:PORT makes one.")
        return
    print_rows(
        ("", "Profile", "Brokers", "URL"),
        (("*" if one["is_current"] else "", one["profile"], one["brokers"], one["url"])
         for one in found),
    )  # fmt: skip


@profile.command()
@click.argument("name")
def use(name: str) -> None:
    """Choose the current profile.

    Example: odradek profile use production
    """
    profiles = Profiles()
    profiles.named(name)
    profiles.current = name
    profiles.store()
    click.echo(f"{name}: current")


@profile.command()
@click.argument("name", required=False)
@json_option
def show(name: str | None, as_json: bool) -> None:
    """Show a profile, or the current one, without its secrets.

    Example: odradek profile show production
    """
    profiles = Profiles()
    chosen = name or profiles.current
    if chosen is None:
        raise CommandError("there is no current profile: odradek profile use NAME chooses one")
    shown = profiles.named(chosen)
    properties = {key: _shown(key, value) for key, value in sorted(shown.properties.items())}
    if as_json:
        return print_json({**_document(profiles, chosen), "properties": properties})
    urls = [("url", shown.url), ("registry", shown.registry)]
    click.echo(f"{chosen}{'  (current)' if chosen == profiles.current else ''}")
    print_rows(("Property", "Value"), [*properties.items(), *urls])


@profile.command()
@click.argument("name")
def delete(name: str) -> None:
    """Delete a profile.

    Example: odradek profile delete production
    """
    profiles = Profiles()
    profiles.named(name)
    del profiles.by_name[name]
    if profiles.current == name:
        profiles.current = None
    profiles.store()
    click.echo(f"{name}: deleted")


def _document(profiles: Profiles, name: str) -> dict[str, object]:
    one = profiles.by_name[name]
    is_current = name == profiles.current
    urls = {"url": one.url, "registry": one.registry}
    return {"profile": name, "is_current": is_current, "brokers": one.servers, **urls}


def _shown(key: str, value: str) -> str:
    return _HIDDEN if any(part in key for part in _SECRETS) else value
