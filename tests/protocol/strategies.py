"""Hypothesis strategies derived from the declarations: any message, at any version."""

from __future__ import annotations

import functools
import pkgutil
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from odradek.protocol import messages
from odradek.protocol.messages import message_classes
from odradek.protocol.schema import Field, fields_of, info_of
from tests import profiles

Strategy = st.SearchStrategy[Any]
# Gives the strategy for a field of that name, or None where any value of its type will do.
Narrow = Callable[[str], Strategy | None]

MODULES = sorted(module.name for module in pkgutil.iter_modules(messages.__path__))
MESSAGES: list[type] = [cls for name in MODULES for cls in message_classes(name)]
MESSAGE_VERSIONS: list[tuple[type, int]] = [
    (cls, version) for cls in MESSAGES for version in info_of(cls).versions
]

_PRIMITIVES: dict[str, Strategy] = {
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "float64": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "uuid": st.binary(min_size=16, max_size=16),
    # The lengths around 127 are where a varint grows from one byte to two.
    "string": st.text(max_size=6) | st.integers(126, 129).map("x".__mul__),
    "bytes": st.binary(max_size=6) | st.integers(126, 129).map(b"x".__mul__),
    "records": st.binary(max_size=6) | st.integers(126, 129).map(b"x".__mul__),
}


def _anything(name: str) -> None:
    return None


def label(item: Any) -> str:
    """Name a class or a version in a test's id."""
    return item.__name__ if isinstance(item, type) else f"v{item}"


def examples(count: int) -> settings:
    """Return settings for a property that is tested for each message and version."""
    return settings(
        max_examples=profiles.examples(count),
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


@functools.cache
def messages(cls: type, version: int, narrow: Narrow = _anything) -> Strategy:
    """Build values of a message or struct; what the version lacks is left at its default."""
    present = [field for field in fields_of(cls) if version in field.spec.versions]
    return st.builds(cls, **{field.name: _values(field, version, narrow) for field in present})


def versioned(cls: type, versions: list[int], narrow: Narrow = _anything) -> Strategy:
    """Build pairs of a version, one of those given, and a value of the message at it."""
    return st.sampled_from(versions).flatmap(
        lambda version: st.tuples(st.just(version), messages(cls, version, narrow))
    )


def _values(field: Field, version: int, narrow: Narrow) -> Strategy:
    if field.struct is not None:
        inner = messages(field.struct, version, narrow)
    else:
        assert field.primitive is not None
        narrowed = narrow(field.name)
        inner = _PRIMITIVES[field.primitive.name] if narrowed is None else narrowed
    if field.is_array:
        inner = st.lists(inner, max_size=2)
    return st.none() | inner if field.is_nullable(version) else inner
