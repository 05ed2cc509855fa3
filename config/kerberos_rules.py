"""How a Kerberos principal becomes the name of a principal (KerberosShortNamer, KerberosRule).

    sasl.kerberos.principal.to.local.rules=RULE:[2:$1@$0](.*@EXAMPLE.COM)s/@.*//,DEFAULT

    RULE:[components:format](match)s/from/to/g/L
          |          |       |      |         the case of the result: L lower, U upper
          |          |       |      a replacement in the text, once, or everywhere with g
          |          |       the whole text must match
          |          the text: $0 the realm, $1 and $2 the components
          for principals with so many components

The first rule that applies counts. DEFAULT applies to principals of the default realm, and gives
their first component. A result with a slash or an at sign is refused. Expressions are Python's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from odradek.config.errors import ConfigError
from odradek.config.kerberos import OPTION
from odradek.dataclass import dataclass

_RULE = re.compile(
    r"(?P<default>DEFAULT)|RULE:\[(?P<count>\d*):(?P<format>[^\]]*)\](?:\((?P<match>[^)]*)\))?"
    r"(?:s/(?P<old>[^/]*)/(?P<new>[^/]*)/(?P<all>g)?)?/?(?P<case>[LU])?",
    re.ASCII,
)
_PRINCIPAL = re.compile(r"(?P<first>[^/@]*)(?:/(?P<second>[^/@]*))?@(?P<realm>[^/@]*)")
_PARAMETER = re.compile(r"\$(\d*)", re.ASCII)
_REFERENCE = re.compile(r"\\(.)|\$(\d)", re.ASCII | re.DOTALL)
_NOT_SIMPLE = re.compile(r"[/@]")


class NoRuleApplies(Exception):
    """No rule gives a simple name for a principal."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """One rule; `count` is None for DEFAULT."""

    count: int | None
    format: str = ""
    match: re.Pattern[str] | None = None
    old: re.Pattern[str] | None = None
    new: str = ""
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
        return {"L": found.lower, "U": found.upper}.get(self.case, lambda: found)()

    def _replaced(self, text: str) -> str | None:
        if self.match is not None and self.match.fullmatch(text) is None:
            return None
        if self.old is None:
            return text
        return self.old.sub(
            lambda one: _REFERENCE.sub(
                lambda part: part[1] if part[2] is None else one[int(part[2])] or "", self.new
            ),
            text,
            count=0 if self.is_global else 1,
        )


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
    old = _expression(text, found["old"])
    groups = [int(two) for _, two in _REFERENCE.findall(found["new"] or "") if two]
    if old is not None and max(groups, default=0) > old.groups:
        raise ConfigError(f"{OPTION}: `{text}` names a group that its expression does not have")
    return _Rule(
        count,
        found["format"],
        _expression(text, found["match"]),
        old,
        found["new"] or "",
        bool(found["all"]),
        found["case"] or "",
    )


def _expression(rule: str, text: str | None) -> re.Pattern[str] | None:
    if text is None:
        return None
    try:
        return re.compile(text, re.ASCII)
    except re.error as error:
        raise ConfigError(
            f"{OPTION}: an expression of `{rule}` is not understood: {error}"
        ) from None


def _part(parts: Sequence[str], digits: str) -> str:
    number = int(digits)
    if number >= len(parts):
        raise NoRuleApplies(f"a rule of {OPTION} names ${number} of {len(parts) - 1} components")
    return parts[number]
