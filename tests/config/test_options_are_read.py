"""An option that is declared does something, or says that it does nothing."""

from __future__ import annotations

import re
from pathlib import Path

from odradek.config.effective import declared_options

ROOT = Path(__file__).parent.parent.parent
READERS = ("config", "storage", "cleaner", "broker")
CODE = "\n".join(path.read_text() for name in READERS for path in (ROOT / name).rglob("*.py"))
# Without the strings, for the name of an option is no use of it.
STRINGS = re.compile(r'"""(?:.|\n)*?"""|"(?:[^"\\\n]|\\.)*"')
READ = set(re.findall(r"\.([a-z0-9_]+)\b", STRINGS.sub("", CODE)))


def test_each_option_is_read_or_says_that_it_has_no_effect() -> None:
    ignored = [
        option.name
        for option in declared_options()
        if option.attribute not in READ and not option.inert
    ]
    assert not ignored
