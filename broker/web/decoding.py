"""Keys and values by their schemas, in an answer as JSON.

    {"size_bytes": 30, …, "schema": {"id": 7, "kind": "AVRO", "data": {"price": 10}}}

`problem` instead of `data` says why there is none. Time and bytes of an answer are bounded.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from odradek.broker.web.octets import SHOWN_BYTES_MAX, as_text_or_hex
from odradek.cleaner.reading.excerpts import Cut

if TYPE_CHECKING:
    from odradek.schemas.records import Codecs, Decoded

Json = dict[str, object]

# Larger values are cut before they can be decoded.
DECODED_BYTES_MAX = 64 << 10
# The characters of one key or value as JSON, and of all in an answer.
_LENGTH_MAX, _LENGTHS_MAX = 256 << 10, 4 << 20
_ANSWER_S = 5.0


class Decoding:
    """Shows the keys and values of one answer; a thread at a time uses it."""

    def __init__(self, codecs: Codecs | None) -> None:
        """Begin. Without `codecs`, keys and values are shown as they are."""
        self._codecs = codecs
        self._end_s = time.monotonic() + _ANSWER_S
        self._left = _LENGTHS_MAX

    def shown(self, one: Cut | None) -> Json | None:
        """Show a key or value, by its schema if it has one."""
        if one is None:
            return None
        shown = as_text_or_hex(Cut(one.data[:SHOWN_BYTES_MAX], one.size_bytes))
        decoded = None if self._codecs is None else self._decode(self._codecs, one)
        if shown is None or decoded is None:
            return shown
        return {**shown, "schema": self._as_json(decoded)}

    def _decode(self, codecs: Codecs, one: Cut) -> Decoded | None:
        from odradek.schemas.records import undecoded

        if one.is_cut:
            return undecoded(one.data, f"only {DECODED_BYTES_MAX} bytes can be decoded")
        if time.monotonic() > self._end_s:
            return undecoded(one.data, "this answer took too long: ask for fewer records")
        return codecs.decode(one.data)

    def _as_json(self, decoded: Decoded) -> Json:
        known: Json = {"id": decoded.schema_id, "kind": decoded.kind}
        problem = decoded.problem or self._too_long(decoded.data)
        return {**known, **({"data": decoded.data} if problem is None else {"problem": problem})}

    def _too_long(self, data: object) -> str | None:
        """Count the characters of data as JSON, no further than they may go."""
        left = min(_LENGTH_MAX, self._left)
        length = 0
        # A few bytes may become many long names of fields; the encoder yields piece by piece.
        for piece in json.JSONEncoder().iterencode(data):
            length += len(piece)
            if length > left:
                return "its data is too long to be shown"
        self._left -= length
        return None
