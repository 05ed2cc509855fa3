"""Draws records: keys and values that are null, empty, text and no text."""

from __future__ import annotations

from hypothesis import strategies as st

from odradek.cli.records import Line

BYTES = st.one_of(
    st.none(), st.just(b""), st.binary(max_size=20), st.text(max_size=10).map(str.encode)
)
HEADER_KEYS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5)
HEADERS = st.lists(st.tuples(HEADER_KEYS, BYTES), max_size=3).map(tuple)
RECORDS = st.builds(Line, key=BYTES, value=BYTES, headers=HEADERS)
