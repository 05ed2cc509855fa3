"""The text of sasl.jaas.config, read as Kafka reads it (JaasConfig, on Java's StreamTokenizer).

    org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="a secret";

    <class of the login module> <control flag> (<option>=<value>)* ;

An error gives a place in the text and quotes none of its words: any of them may be a piece of a
secret that lacks its quotes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field

from odradek.config.errors import ConfigError
from odradek.dataclass import dataclass

_FLAGS = ("REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL")
# A word that begins with a digit, a dot or a dash is a number to Java, and needs quotes.
_TOKEN = re.compile(
    r"""
    (?P<blank>[\x00-\x20]+ | /\*.*?(?:\*/|\Z) | /[^\n\r]*)
    | (?P<word>[A-Za-z_$\u0080-\U0010ffff][A-Za-z0-9_$.\u0080-\U0010ffff-]*)
    | "(?P<double>(?:[^"\\\n\r]|\\[^\n\r])*)"
    | '(?P<single>(?:[^'\\\n\r]|\\[^\n\r])*)'
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_LETTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass(frozen=True, slots=True)
class LoginModule:
    """A login module with its options, which hold secrets."""

    name: str
    options: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Token:
    """A word or a quoted text (`text`), or else a character that stands for itself (`mark`)."""

    place: int
    text: str | None
    mark: str = ""


def parse_jaas(text: str) -> LoginModule:
    """Read the one login module of a text; raise ConfigError, which shows nothing of it."""
    tokens = _Tokens(text)
    modules: list[LoginModule] = []
    while (token := tokens.take()) is not None:
        modules.append(_module(token, tokens))
    if not modules:
        raise ConfigError("names no login module: write <class> required <option>=<value>;")
    if len(modules) > 1:
        raise ConfigError(f"has {len(modules)} login modules, but must have one")
    return modules[0]


def _module(first: _Token, tokens: _Tokens) -> LoginModule:
    if first.text is None:
        raise ConfigError(f"has no login module class at {_at(first)}")
    flag = tokens.take()
    if flag is None or flag.text is None or flag.text.upper() not in _FLAGS:
        raise ConfigError("has no control flag after the login module: write required")
    options: dict[str, str] = {}
    while (token := tokens.take()) is not None and token.mark != ";":
        if token.text is None:
            raise ConfigError(f"has no option name at {_at(token)}: quote values that need it")
        equals, value = tokens.take(), tokens.take()
        if equals is None or equals.mark != "=" or value is None or value.text is None:
            raise ConfigError(
                f'has an option without a value at {_at(token)}: write it as name="value"'
            )
        options[token.text] = value.text
    if token is None:
        raise ConfigError("does not end with a semicolon: add one")
    return LoginModule(first.text, options)


class _Tokens:
    """The tokens of a text, one after the other."""

    def __init__(self, text: str) -> None:
        self._rest = _tokens(text)

    def take(self) -> _Token | None:
        """Return the next token, None at the end."""
        return next(self._rest, None)


def _tokens(text: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(text):
        place = match.start() + 1
        kind = match.lastgroup
        if kind == "blank":
            continue
        if kind in ("double", "single"):
            yield _Token(place, _ESCAPE.sub(_unescaped, match[kind]))
        elif kind == "word":
            yield _Token(place, match[0])
        else:
            yield _Token(place, None, match[0])


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code, 8)) if code[0] in "01234567" else _LETTERS.get(code, code)


def _at(token: _Token) -> str:
    return f"character {token.place}"
