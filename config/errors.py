"""The error for a bad configuration, which has all of its problems at once."""

from collections.abc import Iterable


class ConfigError(Exception):
    """Values that cannot be used: one sentence for each, in Kafka's words where Kafka has any."""

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def raise_any(problems: Iterable[str]) -> None:
    """Raise one ConfigError for all problems, each named once; return when there are none."""
    found = tuple(dict.fromkeys(problems))
    if found:
        raise ConfigError(*found)
