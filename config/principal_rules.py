"""How a certificate's distinguished name becomes the name of a principal (SslPrincipalMapper).

    ssl.principal.mapping.rules=RULE:^CN=([^,]*),OU=Sales.*$/$1/L,DEFAULT

The first rule applies whose expression matches the whole name. The expression stands between
RULE: and the first slash. The text after it replaces every match, with the match's first group
for $1; L or U at the end turns the result into lower or upper case. DEFAULT keeps the name
unchanged. Expressions are Java's (config/java_rules.py).
"""

from __future__ import annotations

import re

from odradek.config.errors import ConfigError
from odradek.config.java_rules import (
    NoRuleApplies,
    Replacement,
    compile_java,
    in_case,
    read_replacement,
    replace,
)
from odradek.dataclass import dataclass

OPTION = "ssl.principal.mapping.rules"

_RULE = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER = re.compile(rf"\s*({_RULE})\s*(,\s*|$)", re.ASCII)
_PARSER = re.compile(_RULE)
_REFERENCE = re.compile(r"\$([0-9]+)")


@dataclass(frozen=True, slots=True)
class _Rule:
    """An expression and the replacement for its matches; DEFAULT has no expression."""

    expression: re.Pattern[str] | None
    replacement: Replacement
    case: str

    def apply(self, name: str) -> str | None:
        """Return the name that the rule makes of a name; None when it does not match."""
        if self.expression is None:
            return name
        if self.expression.fullmatch(name) is None:
            return None
        return in_case(replace(self.expression, self.replacement, name), self.case)


class PrincipalRules:
    """The rules of a listener, in their order."""

    def __init__(self, text: str) -> None:
        """Read the rules; raise ConfigError for a rule that cannot be parsed or translated."""
        words = [match[1] for match in _SPLITTER.finditer(text.strip())]
        self._text = text
        self._rules = [rule for word in words if (rule := _parse(word)) is not None]

    def apply(self, name: str) -> str:
        """Return the principal's name for a distinguished name. Raises NoRuleApplies."""
        for rule in self._rules:
            found = rule.apply(name)
            if found is not None:
                return found
        raise NoRuleApplies(f"no rule of {OPTION} applies to {name}")


def _parse(word: str) -> _Rule | None:
    """Read one rule; return None for an empty one, which is ignored."""
    match = _PARSER.match(word)
    assert match is not None, "the last alternative matches anything"
    if match.end() != len(word):
        rest = word[match.end() :]
        raise ConfigError(f"{OPTION}: Invalid rule: `{word}`, unmatched substring: `{rest}`")
    if match[1] is not None:
        return _Rule(None, (), "")
    if match[2] is None:
        return None
    expression = compile_java(OPTION, word, match[2])
    escaped = _escape_unknown(match[3], expression.groups)
    replacement = tuple(read_replacement(OPTION, word, escaped, expression))
    return _Rule(expression, replacement, match[4])


def _escape_unknown(text: str, group_count: int) -> str:
    """Escape references to groups that do not exist, exactly as Kafka does.

    Kafka takes the place of each backslash from the original text, even once it has inserted
    another one; so does this function.
    """
    if group_count == 0:
        return text
    value = text
    for match in _REFERENCE.finditer(text):
        if match[1].startswith("0"):
            continue
        number = int(match[1])
        while number > group_count and number >= 10:
            number //= 10
        if number > group_count:
            start = match.start(1) - 1
            value = f"{value[:start]}\\{value[start:]}"
    return value
