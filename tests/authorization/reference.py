"""Makes docs/authorization.md of the table that the matrix test plays to both brokers."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from odradek.broker.api_table import APIS
from tests.authorization.rules import FREE, IMPLIES, RULES

_HEAD = """# Who may do what

Made of `tests/authorization/rules.py` by `make docs`. Every row is a request that the tests send,
by principals with each right alone, with those of the row and without them, to Odradek and to
Apache Kafka 4.3.1 with its StandardAuthorizer. Both serve and refuse the same requests, in the
same words, except for the list in `tests/authorization/differences.py`.

A right is an operation on a kind of resource, which an ACL allows for names. Where a row has
several rights with + between them, the client needs all of them. The broker checks rights only if
`authorizer.class.name` is set; without it every client may do everything.

- The answer about a resource that a client may not see is the same whether it exists or not: a
  topic without DESCRIBE answers TOPIC_AUTHORIZATION_FAILED, never UNKNOWN_TOPIC_OR_PARTITION.
- A request that names several topics or groups is answered for each of them by itself.
- Answers to requests by topic id name no topic that the client may not describe. Every client
  learns that an id is unknown: ids are random, and nothing can be learned from them.
- The bit fields of authorized operations, which clients may ask for, hold what the ACLs allow.
- Regular expressions that consumers subscribe to match only topics that the member whose heartbeat
  has them matched may describe.
"""


def document() -> str:
    """Return the page."""
    return "\n".join([_HEAD, *_implied(), "", *_table(), "", *_free(), ""])


def _implied() -> Iterator[str]:
    stronger: dict[str, list[str]] = {}
    for one, other in IMPLIES.items():
        stronger.setdefault(other.name, []).append(one.name)
    for weaker, operations in stronger.items():
        yield f"An ACL that allows {', '.join(operations)} allows {weaker}, too."


def _table() -> Iterator[str]:
    yield "| request | takes | without it |"
    yield "|---|---|---|"
    served = {api.name for api in APIS}
    for rule in RULES:
        if rule.api in served:
            takes = rule.takes.replace(" or ", "<br>or ")
            yield f"| {rule.name} | {takes} | {rule.refused} |"


def _free() -> Iterator[str]:
    yield "These ask for no right of the tables above:"
    yield ""
    for api in APIS:
        if api.name in FREE:
            yield f"- {api.name}: {FREE[api.name]}."


if __name__ == "__main__":
    sys.stdout.write(document())
