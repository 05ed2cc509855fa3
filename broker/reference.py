"""Writes docs/apis.md: `python -m odradek.broker.reference` prints the APIs and their versions."""

from __future__ import annotations

import sys

from odradek.broker.api_table import APIS
from odradek.protocol.messages import message_classes
from odradek.protocol.schema import info_of

_HEAD = """\
# APIs

The APIs that the broker serves, each in all versions of its range. Made by `make docs`; do not
edit.

| key | API | versions | flexible from | purpose |
|----:|-----|----------|---------------|---------|
"""


def markdown() -> str:
    """Return the page."""
    rows = []
    for api in APIS:
        request = message_classes(api.name)[0]
        module = sys.modules[request.__module__]
        _, _, purpose = (module.__doc__ or "").splitlines()[0].partition(": ")
        flexible = info_of(request).flexible
        flexible_from = str(flexible.first) if api.last in flexible else "never"
        cells = (str(api.key), api.name, f"{api.first}-{api.last}", flexible_from, purpose)
        rows.append(f"| {' | '.join(cells)} |\n")
    return _HEAD + "".join(rows)


if __name__ == "__main__":
    sys.stdout.write(markdown())
