"""odradek quotas: lists, sets and deletes the quotas of users, clients and addresses."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from odradek.cli.answer import print_json
from odradek.cli.arguments import Name, Pair, dry_run_option, yes_option
from odradek.cli.client import Connection, broker_options, json_option
from odradek.cli.refusals import Act, CommandError, check, did_you_mean
from odradek.config.printable import printable

if TYPE_CHECKING:
    from odradek.cli.wire.client import Wire

F = TypeVar("F", bound=Callable[..., None])

# Names by types of Kafka's, in the order of _TYPES; None is the default of a type.
Entity = Mapping[str, str | None]
Quotas = Mapping[str, float]

_TYPES = {"user": "user", "client-id": "client id", "ip": "address"}
_KEYS = (
    "producer_byte_rate", "consumer_byte_rate", "request_percentage",
    "controller_mutation_rate", "connection_creation_rate",
)  # fmt: skip
_DEFAULT = "default"
_EXACT, _UNNAMED = 0, 1


class _Key(click.ParamType[str]):
    """The name of a quota."""

    name = "key"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """Return the name; refuse one that Kafka does not have."""
        if value not in _KEYS:
            hint = did_you_mean(value, _KEYS) or f": choose from {', '.join(_KEYS)}"
            self.fail(f"there is no quota {value}{hint}", param, ctx)
        return str(value)


class _Quota(click.ParamType[tuple[str, float]]):
    """KEY=VALUE, the name of a quota and a positive number."""

    name = "quota"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, float]:
        """Split the text, and read its number."""
        key, text = Pair().convert(value, param, ctx)
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not 0 < number < math.inf:
            self.fail(f"{text!r} is not a positive number", param, ctx)
        return _Key().convert(key, param, ctx), number


def _entity_options(command: F) -> F:
    """Add the options of an entity's names; the command gets `entity`."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        named = {kind: kwargs.pop(kind.replace("-", "_")) for kind in _TYPES}
        entity = {
            kind: None if name == _DEFAULT else name
            for kind, name in named.items()
            if name is not None
        }
        command(*args, entity=entity, **kwargs)

    made: Any = run
    for kind, noun in reversed(_TYPES.items()):
        text = f"The {noun} with the quotas, or default for all without quotas of their own."
        made = click.option(f"--{kind}", metavar="NAME", type=Name(), help=text)(made)
    return made  # type: ignore[no-any-return]


@click.group()
def quotas() -> None:
    """List, set and delete quotas of users, clients and addresses."""


@quotas.command("list")
@_entity_options
@json_option
@broker_options
def list_quotas(entity: Entity, as_json: bool, connection: Connection) -> None:
    """List quotas, all of them or those of some users, clients and addresses.

    Example: odradek quotas list --user ann
    """
    with connection.wire() as wire:
        found = _found(wire, entity)
    if as_json:
        return print_json(
            {
                "quotas": [
                    {"entity": one, "values": {key: _number(at) for key, at in values.items()}}
                    for one, values in found
                ]
            }
        )
    if not found:
        return click.echo("There are no quotas: odradek quotas set sets one.")
    from odradek.cli.tables import print_rows

    print_rows(
        ["User", "Client", "Address", "Quota", "Value>"],
        [
            (*(_named(one[kind]) if kind in one else None for kind in _TYPES), key, _text(value))
            for one, values in found
            for key, value in values.items()
        ],
    )


@quotas.command("set")
@click.argument("wanted", nargs=-1, required=True, metavar="QUOTA=VALUE...", type=_Quota())
@_entity_options
@dry_run_option
@json_option
@broker_options
def set_quotas(
    wanted: tuple[tuple[str, float], ...],
    entity: Entity,
    dry_run: bool,
    as_json: bool,
    connection: Connection,
) -> None:
    """Set quotas of a user, a client id, both together, or an address.

    Quotas are producer_byte_rate and consumer_byte_rate in bytes a second, request_percentage in
    percent of a thread's time, controller_mutation_rate in partitions a second, and
    connection_creation_rate in connections a second, which is for addresses.

    Example: odradek quotas set --user ann producer_byte_rate=1048576
    """
    _require_names(entity)
    values = dict(wanted)
    with connection.wire() as wire:
        before = _quotas_of(wire, entity)
        _alter(wire, entity, values, dry_run=dry_run)
    _show(entity, before, values, dry_run=dry_run, as_json=as_json)


@quotas.command()
@click.argument("keys", nargs=-1, metavar="[QUOTA...]", type=_Key())
@_entity_options
@dry_run_option
@yes_option
@json_option
@broker_options
def delete(
    keys: tuple[str, ...],
    entity: Entity,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    connection: Connection,
) -> None:
    """Delete quotas of a user, a client id, both together, or an address: some, or all.

    Asks for confirmation, unless --yes is given.

    Example: odradek quotas delete --user ann producer_byte_rate --yes
    """
    _require_names(entity)
    with connection.wire() as wire:
        before = _quotas_of(wire, entity)
        missing = [key for key in keys if key not in before]
        if missing or not before:
            raise CommandError(f"{_written(entity)} has no {missing[0] if missing else 'quotas'}")
        wanted = tuple(dict.fromkeys(keys or before))
        if not (yes or dry_run):
            question = f"Delete {', '.join(wanted)} of {_written(entity)}?"
            click.confirm(printable(question), abort=True, err=True)
        _alter(wire, entity, dict.fromkeys(wanted), dry_run=dry_run)
    _show(entity, before, dict.fromkeys(wanted), dry_run=dry_run, as_json=as_json)


def _require_names(entity: Entity) -> None:
    if not entity or ("ip" in entity and len(entity) > 1):
        raise click.UsageError("name --user, --client-id or both, or --ip")


def _found(wire: Wire, entity: Entity) -> list[tuple[Entity, Quotas]]:
    """Return the entities that have these names, perhaps among others, with their quotas."""
    from odradek.protocol.messages.describe_client_quotas import (
        ComponentData,
        DescribeClientQuotasRequest,
        DescribeClientQuotasResponse,
    )

    components = [
        ComponentData(entity_type=kind, match_type=_UNNAMED if name is None else _EXACT,
                      match=name)
        for kind, name in entity.items()
    ]  # fmt: skip
    request = DescribeClientQuotasRequest(components=components, strict=False)
    act = Act("list quotas", "DESCRIBE_CONFIGS on the cluster")
    answer = wire.ask(request, DescribeClientQuotasResponse, act)
    check(answer.error_code, act, answer.error_message)
    found = []
    for entry in answer.entries or ():
        names = {one.entity_type: one.entity_name for one in entry.entity}
        values = {one.key: one.value for one in sorted(entry.values, key=lambda one: one.key)}
        found.append(({kind: names[kind] for kind in _TYPES if kind in names}, values))
    return sorted(found, key=lambda one: [_sort_key(one[0], kind) for kind in _TYPES])


def _sort_key(entity: Entity, kind: str) -> tuple[bool, str]:
    """Return a key by which names come first, then the default, then entities of other types."""
    return kind not in entity, entity.get(kind) or "\U0010ffff"


def _quotas_of(wire: Wire, entity: Entity) -> Quotas:
    """Return the quotas of exactly one entity."""
    return next((values for one, values in _found(wire, entity) if one == entity), {})


def _alter(
    wire: Wire, entity: Entity, values: Mapping[str, float | None], *, dry_run: bool
) -> None:
    """Set values; None removes a quota."""
    from odradek.protocol.messages.alter_client_quotas import (
        AlterClientQuotasRequest,
        AlterClientQuotasResponse,
        EntityData,
        EntryData,
        OpData,
    )

    entry = EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[
            OpData(key=key, value=value or 0.0, remove=value is None)
            for key, value in values.items()
        ],
    )
    act = Act(f"change the quotas of {_written(entity)}", "ALTER_CONFIGS on the cluster")
    request = AlterClientQuotasRequest(entries=[entry], validate_only=dry_run)
    answer = wire.repeat(
        lambda: wire.ask(request, AlterClientQuotasResponse, act),
        lambda one: [entry.error_code for entry in one.entries],
    )
    for one in answer.entries:
        check(one.error_code, act, one.error_message)


def _show(
    entity: Entity,
    before: Quotas,
    after: Mapping[str, float | None],
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    if as_json:
        rows = [
            {"quota": key, "before": _number(before.get(key)), "after": _number(value)}
            for key, value in after.items()
        ]
        return print_json({"entity": entity, "dry_run": dry_run, "quotas": rows})
    from odradek.cli.tables import print_rows

    click.echo(printable(_written(entity)))
    print_rows(
        ["Quota", "Before>", "After>"],
        [(key, _text(before.get(key)), _text(value)) for key, value in after.items()],
    )
    if dry_run:
        click.echo("\nNothing was changed.")


def _written(entity: Entity) -> str:
    """Name an entity: user ann, client id billing."""
    return ", ".join(f"{_TYPES[kind]} {_named(name)}" for kind, name in entity.items())


def _named(name: str | None) -> str:
    return _DEFAULT if name is None else name


def _number(value: float | None) -> float | int | None:
    """Return a whole number as such."""
    return int(value) if value is not None and value.is_integer() else value


def _text(value: float | None) -> str | None:
    return None if value is None else f"{_number(value):,}"
