"""How a Kerberos principal becomes the name of a principal (KerberosShortNamer, KerberosRule).

    sasl.kerberos.principal.to.local.rules=RULE:[2:$1@$0](.*@EXAMPLE.COM)s/@.*//,DEFAULT

    RULE:[components:format](match)s/from/to/g/L
          |          |       |      |         the case of the result: L lower, U upper
          |          |       |      a replacement in the text, once, or everywhere with g
          |          |       the whole text must match
          |          the text: $0 the realm, $1 and $2 the components
          for principals with so many components

The first rule that applies counts. DEFAULT applies to principals of the default realm, and gives
their first component. A result with a slash or an at sign is refused. Expressions are
Java's (config/java_rules.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from odradek.config.errors import ConfigError
from odradek.config.java_rules import (
    NoRuleApplies,
    Replacement,
    compile_java,
    in_case,
    read_replacement,
    replace,
)
from odradek.config.kerberos import OPTION
from odradek.dataclass import dataclass

_RULE = re.compile(
    r"(?P<default>DEFAULT)|RULE:\[(?P<count>\d*):(?P<format>[^\]]*)\](?:\((?P<match>[^)]*)\))?"
    r"(?:s/(?P<old>[^/]*)/(?P<new>[^/]*)/(?P<all>g)?)?/?(?P<case>[LU])?",
    re.ASCII,
)
_PRINCIPAL = re.compile(r"(?P<first>[^/@]*)(?:/(?P<second>[^/@]*))?@(?P<realm>[^/@]*)")
_PARAMETER = re.compile(r"\$(\d*)", re.ASCII)
_NOT_SIMPLE = re.compile(r"[/@]")


@dataclass(frozen=True, slots=True)
class _Rule:
    """One rule; `count` is None for DEFAULT."""

    count: int | None
    format: str = ""
    match: re.Pattern[str] | None = None
    old: re.Pattern[str] | None = None
    new: Replacement = ()
    is_global: bool = False
    case: str = ""

    def apply(self, parts: Sequence[str], default_realm: str) -> str | None:
        """Return the name for the realm and components of a principal; None if it is not meant.

        Raises NoRuleApplies for a name that is not simple.
        """
        if self.count is None:
            found = parts[1] if parts[0] == default_realm else None
        elif len(parts) - 1 != self.count:
            found = None
        else:
            found = self._replaced(_PARAMETER.sub(lambda one: _part(parts, one[1]), self.format))
        if found is None:
            return None
        if _NOT_SIMPLE.search(found):
            raise NoRuleApplies(f"a rule of {OPTION} gives {found}, which is not simple")
        return in_case(found, self.case)

    def _replaced(self, text: str) -> str | None:
        if self.match is not None and self.match.fullmatch(text) is None:
            return None
        if self.old is None:
            return text
        return replace(self.old, self.new, text, is_global=self.is_global)


class KerberosRules:
    """The rules of a listener, in their order."""

    def __init__(self, rules: Sequence[str]) -> None:
        """Read the rules; raise ConfigError for one that cannot be read."""
        self._rules = [_read(rule.strip()) for rule in rules]

    def apply(self, principal: str, default_realm: str) -> str:
        """Return the short name of a principal. Raises NoRuleApplies."""
        found = _PRINCIPAL.fullmatch(principal)
        if found is None:
            if "@" in principal:
                raise NoRuleApplies(f"{principal} is no Kerberos principal")
            return principal
        parts = [found["realm"], found["first"]]
        if found["second"] is not None:
            parts.append(found["second"])
        for rule in self._rules:
            name = rule.apply(parts, default_realm)
            if name is not None:
                return name
        raise NoRuleApplies(f"no rule of {OPTION} applies to {principal}")


def _read(text: str) -> _Rule:
    found = _RULE.fullmatch(text)
    if found is None:
        raise ConfigError(
            f"{OPTION}: `{text}` is not a rule: write DEFAULT or RULE:[n:format](match)s/from/to/"
        )
    if found["default"]:
        return _Rule(None)
    if not found["count"]:
        raise ConfigError(f"{OPTION}: `{text}` does not say for how many components it is")
    count = int(found["count"])
    named = _PARAMETER.findall(found["format"])
    unknown = [one for one in named if one not in ("0", "1", "2")]
    if unknown:
        raise ConfigError(f"{OPTION}: `{text}` names ${unknown[0]}; use $0, $1 and $2")
    match = None if found["match"] is None else compile_java(OPTION, text, found["match"])
    if found["old"] is None:
        return _Rule(count, found["format"], match, case=found["case"] or "")
    old = compile_java(OPTION, text, found["old"])
    new = tuple(read_replacement(OPTION, text, found["new"], old))
    return _Rule(
        count, found["format"], match, old, new, bool(found["all"]), found["case"] or ""
    )


def _part(parts: Sequence[str], digits: str) -> str:
    number = int(digits)
    if number >= len(parts):
        raise NoRuleApplies(f"a rule of {OPTION} names ${number} of {len(parts) - 1} components")
    return parts[number]
