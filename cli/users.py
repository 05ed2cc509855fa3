"""odradek users: the users of SCRAM, whose credentials the brokers keep."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from odradek.cli.answer import print_json
from odradek.cli.arguments import Name, yes_option
from odradek.cli.client import REQUEST_TIMEOUT_S, Admin, Connection, broker_options, json_option
from odradek.cli.refusals import Act, CommandError, did_you_mean

if TYPE_CHECKING:
    from confluent_kafka.admin import ScramMechanism

_MECHANISMS = ("scram-sha-256", "scram-sha-512")
_DEFAULT_ITERATIONS = 8_192
_ITERATIONS = click.IntRange(4_096, 16_384)  # Kafka's bounds
_LIST = Act("list users", "DESCRIBE on the cluster")

_mechanism_option = click.option(
    "--mechanism",
    "mechanisms",
    multiple=True,
    type=click.Choice(_MECHANISMS, case_sensitive=False),
    help="A mechanism of the user's logins; may be repeated.  [default: all]",
)


@click.group()
def users() -> None:
    """List, create and delete users that log in by SCRAM."""


@users.command("list")
@json_option
@broker_options
def list_users(as_json: bool, connection: Connection) -> None:
    """List the users, and the mechanisms of their logins.

    Example: odradek users list
    """
    found = _found(connection.admin())
    if as_json:
        rows = [{"user": name, "credentials": found[name]} for name in sorted(found)]
        return print_json({"users": rows})
    if not found:
        click.echo("There are no users of SCRAM: odradek users create NAME creates one.")
        return
    from odradek.cli.tables import print_rows

    print_rows(
        ["User", "Mechanism", "Iterations>"],
        [(name, one["mechanism"], one["iterations"])
         for name in sorted(found) for one in found[name]],
    )  # fmt: skip


@users.command()
@click.argument("name", metavar="USER", type=Name())
@_mechanism_option
@click.option("--iterations", type=_ITERATIONS, default=_DEFAULT_ITERATIONS, show_default=True,
              help="The work that guessing the password takes.")  # fmt: skip
@click.option("--password-stdin", is_flag=True, help="Read the password from the first line of "
              "standard input, and do not ask for it.")  # fmt: skip
@broker_options
def create(
    name: str,
    mechanisms: tuple[str, ...],
    iterations: int,
    password_stdin: bool,
    connection: Connection,
) -> None:
    """Create a user, or give a user another password.

    The password is asked for, and is not shown.

    Example: odradek users create ann --mechanism scram-sha-512
    """
    from confluent_kafka.admin import ScramCredentialInfo, UserScramCredentialUpsertion

    admin = connection.admin()
    if password_stdin:
        password = sys.stdin.readline().rstrip("\r\n")
    else:
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    if not password:
        raise CommandError("the password is empty")
    chosen = tuple(dict.fromkeys(mechanisms or _MECHANISMS))
    for one in chosen:
        info = ScramCredentialInfo(_kind(one), iterations)
        upsertion = UserScramCredentialUpsertion(name, info, password.encode())
        _alter(admin, upsertion, f"create user {name}")
    click.echo(f"{name}: may log in by {' and '.join(one.upper() for one in chosen)}")


@users.command()
@click.argument("name", metavar="USER", type=Name())
@_mechanism_option
@yes_option
@broker_options
def delete(
    name: str, mechanisms: tuple[str, ...], yes: bool, connection: Connection
) -> None:
    """Delete a user, or some of a user's mechanisms.

    Asks for confirmation, unless --yes is given. ACLs and quotas of that name stay.

    Example: odradek users delete ann --yes
    """
    from confluent_kafka.admin import UserScramCredentialDeletion

    admin = connection.admin()
    found = _found(admin)
    if name not in found:
        hint = did_you_mean(name, found) or ": odradek users list shows all"
        raise CommandError(f"there is no user {name}{hint}")
    known = [str(one["mechanism"]).lower() for one in found[name]]
    missing = [one for one in mechanisms if one not in known]
    if missing:
        raise CommandError(f"user {name} does not log in by {missing[0].upper()}")
    if not yes:
        click.confirm(f"Delete user {name}?", abort=True, err=True)
    for one in dict.fromkeys(mechanisms or known):
        _alter(admin, UserScramCredentialDeletion(name, _kind(one)), f"delete user {name}")
    left = [one.upper() for one in known if mechanisms and one not in mechanisms]
    click.echo(f"{name}: {'may still log in by ' + left[0] if left else 'deleted'}")


def _found(admin: Admin) -> dict[str, list[dict[str, Any]]]:
    """Return the credentials of all users by name, without anything secret."""
    answer = admin.client.describe_user_scram_credentials(request_timeout=REQUEST_TIMEOUT_S)
    described: dict[str, Any] = admin.wait(answer, _LIST)  # type: ignore[arg-type]
    return {
        name: [
            {"mechanism": one.mechanism.name.replace("_", "-"), "iterations": one.iterations}
            for one in user.scram_credential_infos
        ]
        for name, user in described.items()
    }


def _alter(admin: Admin, alteration: Any, what: str) -> None:
    """Send one alteration: a request may have one for each user, as in Kafka."""
    futures = admin.client.alter_user_scram_credentials(
        [alteration], request_timeout=REQUEST_TIMEOUT_S
    )
    admin.wait(futures[alteration.user], Act(what, "ALTER on the cluster"))


def _kind(mechanism: str) -> ScramMechanism:
    from confluent_kafka.admin import ScramMechanism

    return ScramMechanism[mechanism.upper().replace("-", "_")]
