"""Reads schemas from a schema registry by Confluent's API, which others speak, too.

    GET /schemas/ids/ID                       {"schema": text, "schemaType": …, "references": […]}
    GET /subjects/SUBJECT/versions/VERSION    the same, and "id"; VERSION may be "latest"

`schemaType` is absent for Avro. The source is Confluent's API reference for Schema Registry.

A schema never changes under its id, so it is read once. An id that the registry does not know is
asked for again after half a minute, and so is a registry that does not answer, so that a page full
of such records waits for it once.
"""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections import OrderedDict
from collections.abc import Callable
from http.client import HTTPException
from typing import Any
from urllib.parse import quote

from odradek.config.registry_url import registry_url_problem
from odradek.dataclass import dataclass
from odradek.deadline_http import add_login, fetch_within, read_bounded
from odradek.schemas.errors import SchemaError

AVRO, PROTOBUF, JSON = "AVRO", "PROTOBUF", "JSON"
LATEST = "latest"
_TIMEOUT_S = 5.0
_ANSWER_BYTES_MAX = 1 << 20
_SCHEMAS_MAX = 1000
_ERRORS_MAX = 10_000
_RETRY_S = 30.0
_TYPES = "application/vnd.schemaregistry.v1+json, application/json"


@dataclass(frozen=True, slots=True)
class Reference:
    """A schema that another one uses by a name: in Protobuf, the name of the imported file."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Schema:
    """The text of a schema; `kind` is AVRO, PROTOBUF or JSON."""

    kind: str
    text: str
    references: tuple[Reference, ...] = ()


class Registry:
    """A schema registry, and the schemas it has returned; any thread may ask it."""

    def __init__(
        self, url: str, user_info: str | None = None, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        """Ask nothing yet. `user_info` is USER:PASSWORD.

        Raises SchemaError for a URL that begins with neither http:// nor https://, and for one
        with a user, which messages would show.
        """
        problem = registry_url_problem(url)
        if problem is not None:
            raise SchemaError(problem)
        self._url, self._now_s = url.rstrip("/"), now_s
        self._user_info = user_info
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Any] = OrderedDict()
        # By path: when it may be asked again, and why it failed. "" stands for the registry.
        self._errors: OrderedDict[str, tuple[float, str]] = OrderedDict()

    @property
    def url(self) -> str:
        """The registry's address."""
        return self._url

    def by_id(self, number: int) -> Schema:
        """Return a schema by its id. Raises SchemaError."""
        return _schema(self._read(f"/schemas/ids/{number}"))

    def version(self, subject: str, version: int | str) -> tuple[int, Schema]:
        """Return the id and the schema of a subject's version. Raises SchemaError."""
        found = self._read(f"/subjects/{quote(subject, safe='')}/versions/{version}")
        number = found.get("id")
        if not isinstance(number, int):
            raise SchemaError(f"the schema registry's answer for {subject} has no id")
        return number, _schema(found)

    def _read(self, path: str) -> dict[str, Any]:
        # Threads that want the same schema wait for one request.
        with self._lock:
            known: dict[str, Any] | None = self._known.get(path)
            if known is not None:
                self._known.move_to_end(path)
                return known
            self._refuse_early("")
            self._refuse_early(path)
            found = self._fetch(path)
            # Another version may become the latest.
            if not path.endswith(f"/{LATEST}"):
                self._known[path] = found
            if len(self._known) > _SCHEMAS_MAX:
                self._known.popitem(last=False)
            return found

    def _refuse_early(self, path: str) -> None:
        again_s, reason = self._errors.get(path, (0.0, ""))
        if reason and self._now_s() < again_s:
            raise SchemaError(reason)

    def _fetch(self, path: str) -> dict[str, Any]:
        url, headers = self._url + path, {"Accept": _TYPES}
        request = urllib.request.Request(url, headers=headers)  # noqa: S310 - HTTP only
        if self._user_info:
            add_login(request, self._user_info)
        try:
            text = fetch_within(request, _TIMEOUT_S, _ANSWER_BYTES_MAX)
        except urllib.error.HTTPError as error:
            raise self._note(path, error.code, _message(error)) from error
        except (OSError, ValueError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            message = f"the schema registry {self._url} does not answer: {reason}"
            raise self._failed("", message) from error
        if len(text) > _ANSWER_BYTES_MAX:
            raise self._failed(path, f"a schema has more than {_ANSWER_BYTES_MAX} bytes")
        try:
            found = json.loads(text)
            if isinstance(found, dict):
                return found
        except (ValueError, RecursionError):
            pass
        raise self._failed(path, f"{self._url}{path} is not the API of a schema registry")

    def _note(self, path: str, status: int, message: str) -> SchemaError:
        if status == 404:
            return self._failed(path, f"the schema registry does not know {path}: {message}")
        return self._failed("", f"the schema registry {self._url} answers {status}: {message}")

    def _failed(self, path: str, message: str) -> SchemaError:
        message = " ".join(message.split())
        self._errors[path] = self._now_s() + _RETRY_S, message
        if len(self._errors) > _ERRORS_MAX:
            self._errors.popitem(last=False)
        return SchemaError(message)


def _message(error: urllib.error.HTTPError) -> str:
    """Return the message of an answer, else the text of its status."""
    try:
        text = read_bounded(error.fp, _ANSWER_BYTES_MAX)  # it may be closed: a ValueError
        return str(json.loads(text)["message"])[:300].rstrip(".")
    except (OSError, HTTPException, ValueError, KeyError, TypeError, RecursionError):
        return str(error.reason)
    finally:
        error.close()


def _schema(found: dict[str, Any]) -> Schema:
    text, kind = found.get("schema"), found.get("schemaType") or AVRO
    if not isinstance(text, str) or not isinstance(kind, str):
        raise SchemaError("the schema registry's answer has no schema")
    try:
        references = tuple(
            Reference(str(one["name"]), str(one["subject"]), int(one["version"]))
            for one in found.get("references") or ()
        )
    except (KeyError, TypeError, ValueError) as error:
        raise SchemaError(f"the schema registry's references are malformed: {error}") from error
    return Schema(kind, text, references)
