"""Generated records: random keys, values of one size, tombstones; all from one seed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from odradek.dataclass import dataclass

# With more keys the table of a Zipf distribution takes more memory than a tool should.
ZIPF_KEYS_MAX = 20_000_000
_VALUES = 997  # used in turn; a prime, so that keys and values do not keep step
_NAMED_KEYS_MAX = 1_000_000
_LETTERS = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", dtype=np.uint8)


@dataclass(frozen=True, slots=True)
class Distribution:
    """The frequencies of keys: uniform, sequential, or zipf with an exponent."""

    kind: str
    exponent: float = 1.0


class DistributionType(click.ParamType[Distribution]):
    """uniform, sequential, zipf or zipf:EXPONENT."""

    name = "distribution"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Distribution:
        """Parse the text of a distribution."""
        if isinstance(value, Distribution):
            return value
        match = re.fullmatch(r"(uniform|sequential|zipf)(?::(\d+(?:\.\d+)?))?", str(value))
        if not match or (match[2] and (match[1] != "zipf" or float(match[2]) == 0)):
            self.fail(f"{value!r} is none of uniform, sequential, zipf, zipf:1.2", param, ctx)
        return Distribution(match[1], float(match[2] or 1.0))


@dataclass(frozen=True, slots=True)
class Load:
    """Properties of the records; with 0 keys, records have none."""

    keys: int
    distribution: Distribution
    size_bytes: int
    tombstones: float = 0.0

    def require_drawable(self) -> None:
        """Raise UsageError when there are too many keys to draw from."""
        if self.distribution.kind == "zipf" and self.keys > ZIPF_KEYS_MAX:
            raise click.UsageError(f"zipf takes {ZIPF_KEYS_MAX:,} keys at most")


class KeyDraw:
    """Draws the numbers of keys, from 0; in a Zipf distribution 0 is the most frequent."""

    def __init__(self, load: Load, random: np.random.Generator) -> None:
        self._keys, self._kind, self._random = load.keys, load.distribution.kind, random
        self._next = 0
        if self._kind == "zipf":
            ranks = np.arange(1, load.keys + 1, dtype=np.float64)
            sums = np.cumsum(ranks**-load.distribution.exponent)
            self._cumulated = sums / sums[-1]

    def draw(self, count: int) -> NDArray[np.int64]:
        """Return the numbers of the next keys."""
        if self._kind == "sequential":
            drawn = (self._next + np.arange(count, dtype=np.int64)) % self._keys
            self._next = (self._next + count) % self._keys
            return drawn
        if self._kind == "zipf":
            places = np.searchsorted(self._cumulated, self._random.random(count), side="right")
            return np.minimum(places, self._keys - 1).astype(np.int64)
        return self._random.integers(0, self._keys, count, dtype=np.int64)


class Records:
    """Generates the records of a load; the same seed gives the same records."""

    def __init__(self, load: Load, seed: np.random.SeedSequence) -> None:
        self._load = load
        self._random = np.random.default_rng(seed)
        self._draw = KeyDraw(load, self._random) if load.keys else None
        letters = self._random.integers(0, len(_LETTERS), (_VALUES, load.size_bytes))
        self._values: list[bytes | None] = [_LETTERS[row].tobytes() for row in letters]
        self._values.append(None)
        named = load.keys if load.keys <= _NAMED_KEYS_MAX else 0
        self._names = [key_name(number) for number in range(named)]
        self._made = 0

    def make(self, count: int) -> Iterator[tuple[bytes | None, bytes | None]]:
        """Yield keys and values."""
        which = (self._made + np.arange(count)) % _VALUES
        self._made += count
        if self._load.tombstones:
            which[self._random.random(count) < self._load.tombstones] = _VALUES
        values, names = self._values, self._names
        if self._draw is None:
            yield from ((None, values[value]) for value in which.tolist())
            return
        for key, value in zip(self._draw.draw(count).tolist(), which.tolist(), strict=True):
            yield names[key] if names else key_name(key), values[value]


def key_name(number: int) -> bytes:
    """Return the key with a number."""
    return b"k%d" % number
