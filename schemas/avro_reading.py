"""Reads Avro's binary encoding within bounds, and without a loss.

The library rounds decimals to the precision of their schema, fails at times that Python does not
have, and walks through the whole schema of an array's items for each array.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import avro.errors
import avro.io

# Python converts no more digits at once.
_DECIMAL_BYTES_MAX = 1024


class Decoder(avro.io.BinaryDecoder):
    """Reads leaves; decimals are exact, and a time that Python does not have is a number."""

    def read_decimal_from_fixed(self, precision: int, scale: int, size: int) -> Decimal:
        """Return a decimal."""
        octets = self.read(size)
        if not 0 < len(octets) <= _DECIMAL_BYTES_MAX:
            raise avro.errors.InvalidAvroBinaryEncoding(f"a decimal has {len(octets)} bytes")
        sign, digits, _ = Decimal(int.from_bytes(octets, "big", signed=True)).as_tuple()
        return Decimal((sign, digits, -scale))

    def read_date_from_int(self) -> Any:
        """Return a date."""
        return self._time(super().read_date_from_int)

    def read_time_millis_from_int(self) -> Any:
        """Return a time of day."""
        return self._time(super().read_time_millis_from_int)

    def read_time_micros_from_long(self) -> Any:
        """Return a time of day."""
        return self._time(super().read_time_micros_from_long)

    def read_timestamp_millis_from_long(self) -> Any:
        """Return a time."""
        return self._time(super().read_timestamp_millis_from_long)

    def read_timestamp_micros_from_long(self) -> Any:
        """Return a time."""
        return self._time(super().read_timestamp_micros_from_long)

    def _time(self, read: Callable[[], object]) -> Any:
        position = self.reader.tell()
        try:
            return read()
        except (ValueError, OverflowError):
            self.reader.seek(position)
            return self.read_long()


class Reader(avro.io.DatumReader):
    """Reads data of a schema whose items have at least one byte each."""

    def read_array(self, writers_schema: Any, readers_schema: Any, decoder: Any) -> list[object]:
        """Return the items of an array."""
        items: list[object] = []
        while count := _count(decoder):
            for _ in range(count):
                items.append(self.read_data(writers_schema.items, readers_schema.items, decoder))
        return items

    def read_map(
        self, writers_schema: Any, readers_schema: Any, decoder: Any
    ) -> dict[str, object]:
        """Return the entries of a map."""
        entries: dict[str, object] = {}
        while count := _count(decoder):
            for _ in range(count):
                key = decoder.read_utf8()
                entries[key] = self.read_data(
                    writers_schema.values, readers_schema.values, decoder
                )
        return entries


def _count(decoder: Any) -> int:
    """Return the number of items in a block, 0 at the end."""
    count: int = decoder.read_long()
    if count < 0:  # and the size of the block in bytes
        count = -count
        decoder.skip_long()
    if count > decoder.bytes_remaining():
        raise avro.errors.InvalidAvroBinaryEncoding(f"there are no bytes for {count} items")
    return count
