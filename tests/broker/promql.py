"""Which metrics and labels a PromQL expression asks for, by regular expressions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_STRING = re.compile(r'"[^"]*"')
_RANGE = re.compile(r"\[[^\]]*\]")
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")
# A metric with its matchers, or without; a function is followed by a parenthesis.
_SELECTOR = re.compile(r"(?<![\w.])([a-zA-Z_:][\w:]*)\s*(?:\{([^}]*)\}|(?![\w:]|\s*\())")
_LABEL = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_OPERATORS = {"and", "or", "unless", "bool"}
# What Prometheus adds to each series that it scrapes.
ADDED = {"instance", "job"}


@dataclass(frozen=True, slots=True)
class Selector:
    """A metric, and the labels that are asked for."""

    metric: str
    labels: frozenset[str]


def selectors(expression: str) -> Iterator[Selector]:
    """Iterate over the metrics of an expression."""
    bare = _GROUPING.sub(" ", _RANGE.sub("", _STRING.sub('""', expression)))
    for metric, matchers in _SELECTOR.findall(bare):
        if metric not in _OPERATORS:
            yield Selector(metric, frozenset(_LABEL.findall(matchers)))


def grouping_labels(expression: str) -> set[str]:
    """Return the labels that an expression groups by."""
    found = _GROUPING.findall(expression)
    return {label.strip() for labels in found for label in labels.split(",")}
