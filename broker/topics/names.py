"""The rules for names of topics.

The rules are Kafka's (org.apache.kafka.common.internals.Topic): a name becomes part of a
directory's name and of a metric's, and clients check it by the same rules.
"""

from __future__ import annotations

import re

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
SHARE_GROUP_STATE = "__share_group_state"
# Kafka's own metadata log, which no client may create; Odradek keeps metadata elsewhere.
CLUSTER_METADATA = "__cluster_metadata"

# Topics that the broker itself writes; consumers leave them out unless configured otherwise.
INTERNAL = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE})

# With "-", a partition number of up to 5 digits and a suffix such as "-delete", a directory's
# name stays within the 255 bytes that file systems allow.
LENGTH_MAX = 249

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def problem(name: str) -> str | None:
    """Return the error in a topic's name, in Kafka's words, or None."""
    reason = _reason(name)
    return f"Topic name is invalid: {reason}" if reason else None


def collision_key(name: str) -> str:
    """Return the key of a name that two topics must not share.

    A metric's name has "_" for ".", so that `a.b` and `a_b` would be one metric.
    """
    return name.replace(".", "_")


def _reason(name: str) -> str | None:
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > LENGTH_MAX:
        return f"the length of '{name}' is longer than the max allowed length {LENGTH_MAX}"
    if not _LEGAL.fullmatch(name):
        return (
            f"'{name}' contains one or more characters other than "
            "ASCII alphanumerics, '.', '_' and '-'"
        )
    return None
