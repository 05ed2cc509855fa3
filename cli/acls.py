"""odradek acls: lists, creates and deletes the access control lists of any Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from odradek.cli.answer import print_json
from odradek.cli.arguments import yes_option
from odradek.cli.client import REQUEST_TIMEOUT_S, Admin, Connection, broker_options, json_option
from odradek.cli.completion import complete_groups, complete_topics
from odradek.cli.refusals import MEANINGS, Act, CommandError
from odradek.cli.settings import describe_settings
from odradek.cli.words import count

if TYPE_CHECKING:
    from confluent_kafka.admin import AclBinding, AclBindingFilter

F = TypeVar("F", bound=Callable[..., None])

_OPERATIONS = (
    "all", "read", "write", "create", "delete", "alter", "describe", "cluster-action",
    "describe-configs", "alter-configs", "idempotent-write",
)  # fmt: skip
_PATTERNS = ("literal", "prefixed")
# The one name that Kafka gives to the resource "cluster".
_CLUSTER = "kafka-cluster"
_RIGHT = "{} on the cluster"
_LIST = Act("list ACLs", _RIGHT.format("DESCRIBE"))


class _Operation(click.Choice[str]):
    """An operation, by its name on the command line or in Kafka's messages."""

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """Convert a name, in either spelling: DESCRIBE_CONFIGS means describe-configs."""
        return super().convert(value.replace("_", "-"), param, ctx)


def _binding_options(operations: tuple[str, ...], patterns: tuple[str, ...]) -> Callable[[F], F]:
    """Add the options that select ACLs; a repeated option selects each of its values."""

    def add(command: F) -> F:
        for option in (
            click.option(
                "--deny",
                is_flag=True,
                help="Entries that deny. Without it, create writes entries that allow; list and "
                "delete match both.",
            ),
            click.option("--host", help="The client's address. [default: any]"),
            click.option(
                "--operation",
                "operations",
                multiple=True,
                type=_Operation(operations, case_sensitive=False),
                help="The operation that is allowed or denied.",
            ),
            click.option(
                "--principal",
                "principals",
                multiple=True,
                metavar="User:NAME",
                help="The principal that the entries apply to.",
            ),
            click.option(
                "--pattern",
                type=click.Choice(patterns),
                help="How names of resources match: literal is the full name, prefixed its "
                "beginning.",
            ),
            click.option("--cluster", is_flag=True, help="Entries for the cluster."),
            click.option("--transactional-id", "transactional_ids", multiple=True,
                         help="Entries for this transactional id."),
            click.option("--group", "groups", multiple=True, shell_complete=complete_groups,
                         help="Entries for this group."),
            click.option("--topic", "topics", multiple=True, shell_complete=complete_topics,
                         help="Entries for this topic; * means all topics."),
        ):
            command = option(command)
        return command

    return add


@click.group()
def acls() -> None:
    """List, create and delete access control lists."""


@acls.command("list")
@_binding_options(_OPERATIONS, (*_PATTERNS, "any", "match"))
@json_option
@broker_options
def list_acls(as_json: bool, connection: Connection, **which: Any) -> None:
    """List all entries, or the entries that match the options.

    --pattern match also finds entries that apply to a name by a prefix of it, or by *.

    Example: odradek acls list --topic prices --pattern match
    """
    found = _found(connection.admin(), _filters(which))
    _print(sorted(map(_document, found), key=_order), as_json=as_json)


@acls.command()
@_binding_options(_OPERATIONS, _PATTERNS)
@json_option
@broker_options
def create(as_json: bool, connection: Connection, **which: Any) -> None:
    """Create an entry for each principal, operation and resource.

    Example: odradek acls create --principal User:ann --operation read --topic prices
    """
    missing = [name for name in ("principals", "operations") if not which[name]]
    if missing:
        raise click.UsageError(f"give at least one --{missing[0][:-1]}")
    bindings = [_binding(*one) for one in _combined(which)]
    admin = connection.admin()
    futures = admin.client.create_acls(bindings, request_timeout=REQUEST_TIMEOUT_S)
    for one in bindings:
        admin.wait(futures[one], Act("create an ACL", _RIGHT.format("ALTER")))
    _print([_document(one) for one in bindings], as_json=as_json)


@acls.command()
@_binding_options(_OPERATIONS, (*_PATTERNS, "any", "match"))
@yes_option
@json_option
@broker_options
def delete(as_json: bool, yes: bool, connection: Connection, **which: Any) -> None:
    """Delete the entries that match the options.

    Asks for confirmation, unless --yes is given.

    Example: odradek acls delete --principal User:ann --operation read --topic prices --yes
    """
    filters = _filters(which)
    admin = connection.admin()
    if not yes:
        entries = count(len(_found(admin, filters)), "entry", "entries")
        click.confirm(f"Delete {entries}?", abort=True, err=True)
    futures = admin.client.delete_acls(filters, request_timeout=REQUEST_TIMEOUT_S)
    gone: set[AclBinding] = set()
    for one in filters:
        gone |= set(admin.wait(futures[one], Act("delete ACLs", _RIGHT.format("ALTER"))))
    _print(sorted(map(_document, gone), key=_order), as_json=as_json)


def _found(admin: Admin, filters: Iterable[AclBindingFilter]) -> set[AclBinding]:
    found: set[AclBinding] = set()
    for one in filters:
        future = admin.client.describe_acls(one, request_timeout=REQUEST_TIMEOUT_S)
        found |= set(admin.wait(future, _LIST))
    if not found:
        _require_list_is_allowed(admin)
    return found


def _require_list_is_allowed(admin: Admin) -> None:
    """Raise CommandError when a list is empty because the broker refused to send it.

    librdkafka 2.16 returns an empty list when DescribeAcls fails.
    """
    future = admin.client.describe_cluster(
        include_authorized_operations=True, request_timeout=REQUEST_TIMEOUT_S
    )
    allowed = admin.wait(future, _LIST).authorized_operations or ()
    if "DESCRIBE" not in [one.name for one in allowed]:
        right, name = _RIGHT.format("DESCRIBE"), "CLUSTER_AUTHORIZATION_FAILED"
        raise CommandError(f"could not list ACLs: this needs the right {right} ({name})")
    if "DESCRIBE_CONFIGS" not in [one.name for one in allowed]:
        return
    number = str(admin.brokers[0])
    authorizer = describe_settings(admin, "broker", [number])[number].get("authorizer.class.name")
    if authorizer is not None and not authorizer.value:
        raise CommandError(f"could not list ACLs: {MEANINGS['SECURITY_DISABLED']}")


def _resources(which: dict[str, Any]) -> list[tuple[str, str]]:
    named = {
        "TOPIC": which["topics"],
        "GROUP": which["groups"],
        "TRANSACTIONAL_ID": which["transactional_ids"],
        "BROKER": (_CLUSTER,) if which["cluster"] else (),
    }
    return [(kind, name) for kind, names in named.items() for name in names]


def _combined(which: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return kind, name, pattern, principal, host, operation and permission of each entry."""
    resources = _resources(which)
    if not resources:
        raise click.UsageError(
            "name a resource: --topic, --group, --transactional-id or --cluster"
        )
    permission = "DENY" if which["deny"] else "ALLOW"
    pattern, host = (which["pattern"] or "literal").upper(), which["host"] or "*"
    return [
        (kind, name, pattern, principal, host, operation, permission)
        for kind, name in resources
        for principal in which["principals"]
        for operation in which["operations"]
    ]


def _binding(
    kind: str, name: str, pattern: str, principal: str, host: str, operation: str, permission: str
) -> AclBinding:
    from confluent_kafka.admin import AclBinding

    try:
        return AclBinding(
            _kind(kind), name, _enum("ResourcePatternType", pattern), principal, host,
            _enum("AclOperation", operation), _enum("AclPermissionType", permission),
        )  # fmt: skip
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _filters(which: dict[str, Any]) -> list[AclBindingFilter]:
    """Return filters that together find the matching entries; an absent option matches all."""
    from confluent_kafka.admin import AclBindingFilter

    resources: list[tuple[str, Any]] = [*_resources(which)] or [("ANY", None)]
    principals: tuple[Any, ...] = which["principals"] or (None,)
    return [
        AclBindingFilter(
            _kind(kind),
            name,
            _enum("ResourcePatternType", which["pattern"] or "any"),
            principal,
            which["host"],
            _enum("AclOperation", operation),
            _enum("AclPermissionType", "deny" if which["deny"] else "any"),
        )
        for kind, name in resources
        for principal in principals
        for operation in which["operations"] or ("any",)
    ]


def _kind(name: str) -> Any:
    return _enum("ResourceType", name)


def _enum(kind: str, name: str) -> Any:
    from confluent_kafka import admin

    return getattr(admin, kind)[name.upper().replace("-", "_")]


def _document(one: Any) -> dict[str, str]:
    is_cluster = one.restype.name == "BROKER"
    return {
        "principal": one.principal or "",
        "permission": one.permission_type.name.lower(),
        "operation": one.operation.name.lower().replace("_", "-"),
        "host": one.host or "",
        "resource": "cluster" if is_cluster else one.restype.name.lower().replace("_", "-"),
        "name": one.name or "",
        "pattern": one.resource_pattern_type.name.lower(),
    }


def _order(one: dict[str, str]) -> tuple[str, ...]:
    return tuple(one[key] for key in ("resource", "name", "principal", "operation", "host"))


def _print(found: list[dict[str, str]], *, as_json: bool) -> None:
    if as_json:
        return print_json({"acls": found})
    if not found:
        return click.echo("There are no ACLs.")
    from odradek.cli.tables import print_rows

    print_rows([name.title() for name in found[0]], [tuple(one.values()) for one in found])
