"""The page that lists every option, generated from the declarations.

`python -m odradek.config.reference > docs/configs.md` generates it again.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from odradek.config.effective import TOPIC_OPTION, declared_options
from odradek.config.option import DAY_MS, HOUR_MS, MINUTE_MS, Option, fallbacks_of, options_of
from odradek.config.topic import TopicConfig
from odradek.config.values import DOUBLE_MAX, INT32_MAX, INT64_MAX

_INTRODUCTION = """\
# Configuration

<!-- Made by `python -m odradek.config.reference > docs/configs.md`; edit the declarations. -->

Options have the names, types and meanings of Apache Kafka 4.3. A broker reads them from a
`server.properties` (`odradek serve --config FILE`), from environment variables as Kafka's
images do (`KAFKA_LOG_DIRS` is `log.dirs`: `_` for a dot, `__` for an underscore, `___` for a
dash), and from `--set key=value`; a later source overrides an earlier one. A name that does not
exist causes a warning and is ignored. A topic's options are set when it is created or with
`kafka-configs`.

*Dynamic* options can be changed while the broker runs: *cluster-wide* for all brokers at once
or for one, *per-broker* for one only. A topic's options can always be changed, but for
`odradek.storage`.

Kafka's options that do nothing here are also accepted; [compatibility.md](compatibility.md) lists
them.
"""

_TOPIC = """\
## Topic options

A synonym is the broker's option that applies to topics that do not set their own. Of several
synonyms the first one that is set applies.
"""

_BROKER = """\
## Broker options
"""

_FALLBACKS = """\
## Broker options that topics fall back to

The topic's option in the second column describes each of these.
"""

_MARKS = {INT32_MAX: "2^31 - 1", INT64_MAX: "2^63 - 1", DOUBLE_MAX: "no limit"}
_MS = ((DAY_MS, "day"), (HOUR_MS, "hour"), (MINUTE_MS, "minute"), (1000, "second"))
_BYTES = ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB"))


def reference() -> str:
    """Return the page as Markdown."""
    return "\n".join(
        [
            _INTRODUCTION,
            _TOPIC,
            *_topic_table(),
            "",
            _BROKER,
            *_broker_table(),
            "",
            _FALLBACKS,
            *_fallback_table(),
            "",
        ]
    )


def _topic_table() -> Iterator[str]:
    yield from _head("Name", "Type", "Default", "Valid values", "Synonyms", "Description")
    for one in _shown(options_of(TopicConfig)):
        synonyms = ", ".join(f"`{fallback.name}`" for fallback in one.broker or ())
        yield _row(_code(one.name), *_facts(one), synonyms, one.doc)


def _broker_table() -> Iterator[str]:
    yield from _head("Name", "Type", "Default", "Valid values", "Dynamic", "Description")
    for one in _shown(one for one in declared_options() if one.broker is None):
        yield _row(_code(one.name), *_facts(one), one.dynamic, one.doc)


def _fallback_table() -> Iterator[str]:
    meant = {
        fallback.name: option.name
        for option in TOPIC_OPTION.values()
        for fallback in option.broker or ()
    }
    yield from _head("Name", "Topic option", "Type", "Default", "Valid values", "Dynamic")
    for one in _shown(fallbacks_of(TopicConfig)):
        yield _row(_code(one.name), _code(meant[one.name]), *_facts(one), one.dynamic)


def _shown(options: Iterable[Option]) -> list[Option]:
    # Odradek's own options may be internal so that Kafka's tools see the same list as of Kafka.
    shown = (
        one
        for one in options
        if (not one.internal or one.name.startswith("odradek.")) and not one.inert
    )
    return sorted(shown, key=lambda one: one.name)


def _head(*titles: str) -> Iterator[str]:
    yield _row(*titles)
    yield _row(*("---" for _ in titles))


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def _facts(option: Option) -> tuple[str, str, str]:
    valid = option.valid.description if option.valid else ""
    return option.kind.name.lower(), _default(option), valid


def _code(name: str) -> str:
    return f"`{name}`"


def _default(option: Option) -> str:
    text = option.default_text
    if text is None:
        return "none"
    nice = _nice(option)
    return f"`{text}`{nice}" if text else "empty"


def _nice(option: Option) -> str:
    """Return a round number in common units, or an empty text."""
    value = option.default
    if isinstance(value, int | float) and value in _MARKS:
        return f" ({_MARKS[value]})"
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        return ""
    if option.name.endswith(".ms"):
        for size, unit in _MS:
            if value % size == 0:
                count = value // size
                return f" ({count} {unit}{'s' if count > 1 else ''})"
    if option.name.endswith((".bytes", ".size")):
        for size, unit in _BYTES:
            if value % size == 0:
                return f" ({value // size} {unit})"
    return ""


if __name__ == "__main__":
    sys.stdout.write(reference())
