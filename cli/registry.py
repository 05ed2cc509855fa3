"""Records by the schemas of a schema registry, for `odradek consume` and `odradek produce`.

The password of a registry is in ODRADEK_SCHEMA_REGISTRY_USER_INFO: other users of a machine see
the words of a command. odradek.schemas is imported when a registry is named, not before.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from odradek.cli.place import REGISTRY_ENVIRONMENT
from odradek.cli.records import Consumed, Data, LineError, one_line
from odradek.cli.refusals import CommandError
from odradek.config.printable import printable
from odradek.dataclass import dataclass

if TYPE_CHECKING:
    from odradek.cli.client import Connection
    from odradek.schemas.records import Codecs

F = TypeVar("F", bound=Callable[..., None])

USER_INFO_ENVIRONMENT = "ODRADEK_SCHEMA_REGISTRY_USER_INFO"
_WARNINGS_MAX = 20


def registry_option(command: F) -> F:
    """Add the option for a schema registry, below broker_options; the command gets `codecs`."""

    @click.option(
        "--registry",
        metavar="URL",
        help="The schema registry; an empty URL stands for none. A user and a password are in "
        f"{USER_INFO_ENVIRONMENT} (USER:PASSWORD).  "
        f"[env var: {REGISTRY_ENVIRONMENT}; default: the profile's]",
    )
    @functools.wraps(command)
    def run(*args: Any, registry: str | None, connection: Connection, **kwargs: Any) -> None:
        url = connection.registry if registry is None else registry
        codecs = _codecs(url) if url else None
        command(*args, connection=connection, codecs=codecs, **kwargs)

    return run  # type: ignore[return-value]


def _codecs(url: str) -> Codecs:
    from odradek.schemas.errors import SchemaError
    from odradek.schemas.records import Codecs
    from odradek.schemas.registry import Registry

    user_info = os.environ.get(USER_INFO_ENVIRONMENT) or None
    if user_info is not None and ":" not in user_info:
        raise click.UsageError(f"{USER_INFO_ENVIRONMENT} is not USER:PASSWORD")
    try:
        return Codecs(Registry(url, user_info))
    except SchemaError as error:
        raise click.UsageError(printable(str(error))) from error


class Decoding:
    """Decodes records, and warns of those that it cannot decode."""

    def __init__(self, codecs: Codecs) -> None:
        self._codecs = codecs
        self._problems: set[str] = set()

    def decoded(self, record: Consumed) -> Consumed:
        """Return a record with the data of its key and value, where they follow schemas."""
        return replace(
            record,
            key_data=self._data(record, "key", record.key),
            value_data=self._data(record, "value", record.value),
        )

    def has_key(self, key: bytes | None, wanted: str) -> bool:
        """Return whether a key is the wanted one: its bytes, its text or its data as JSON."""
        if key is None or key == wanted.encode():
            return key is not None
        found = self._codecs.decode(key)
        if found is None or found.problem is not None:
            return False
        return wanted in (found.data, one_line(found.data))

    def _data(self, record: Consumed, name: str, octets: bytes | None) -> Data | None:
        found = None if octets is None else self._codecs.decode(octets)
        if found is None:
            return None
        if found.problem is None:
            return Data(found.schema_id, found.data)
        if found.problem not in self._problems and len(self._problems) < _WARNINGS_MAX:
            self._problems.add(found.problem)
            place = f"{record.topic} {record.partition} offset {record.offset}"
            click.echo(printable(f"{place}: {name}: {found.problem}"), err=True)
        return None


@dataclass(frozen=True, slots=True)
class Chosen:
    """A schema, and a message of it where it is one of Protobuf."""

    number: int
    message: str | None = None


class Encoding:
    """Encodes the data of keys and values by schemas."""

    def __init__(self, codecs: Codecs, key: str | None, value: str | None) -> None:
        """Find schemas: SUBJECT or ID, or SUBJECT#MESSAGE. Raises CommandError."""
        self._codecs = codecs
        self._chosen: dict[str, Chosen] = {}
        for name, schema in (("key", key), ("value", value)):
            if schema is not None:
                self._chosen[name] = self._find(f"--{name}-schema", schema)

    def has(self, name: str) -> bool:
        """Return whether there is a schema for all keys, or all values."""
        return name in self._chosen

    def encode(self, name: str, data: object, number: int | None = None) -> bytes:
        """Return data of JSON as a key or value; `number` is its schema where none is for all.

        Raises LineError.
        """
        from odradek.schemas.errors import SchemaError

        chosen = self._chosen.get(name)
        if chosen is None:
            assert number is not None
            chosen = Chosen(number)
        try:
            return self._codecs.encode(chosen.number, data, chosen.message)
        except SchemaError as error:
            raise LineError(f"{name}: {error}") from error

    def encode_text(self, name: str, text: bytes | None) -> bytes | None:
        """Return JSON as a key or value; null, and a text without a schema, stay.

        Raises LineError.
        """
        if text is None or not self.has(name):
            return text
        try:
            data = json.loads(text.decode())
        except (ValueError, RecursionError) as error:
            raise LineError(f"{name} is not JSON, which a schema needs ({error})") from error
        return self.encode(name, data)

    def _find(self, option: str, schema: str) -> Chosen:
        from odradek.schemas.errors import SchemaError

        before, mark, after = schema.rpartition("#")
        subject, message = (before, after) if mark else (schema, None)
        try:
            number = self._codecs.id_of(subject)
            self._codecs.of(number)  # there is one, and it can be used
        except SchemaError as error:
            raise CommandError(f"{option} {schema}: {error}") from error
        return Chosen(number, message)


def require_registry(codecs: Codecs | None, key: str | None, value: str | None) -> None:
    """Raise UsageError for a schema without a registry."""
    for name, schema in (("key", key), ("value", value)):
        if schema is not None and codecs is None:
            raise click.UsageError(
                f"--{name}-schema needs a schema registry: add --registry URL, or set "
                f"{REGISTRY_ENVIRONMENT}"
            )
