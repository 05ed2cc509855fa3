"""Parses Python files."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple


class Function(NamedTuple):
    """A function or method, wherever it is, and the number of lines after its first one."""

    name: str
    line_count: int


class Definition(NamedTuple):
    """A function or class of a module itself, and the functions and classes in that class."""

    name: str
    is_decorated: bool
    members: tuple[str, ...]


class Outline(NamedTuple):
    """The parts of a module that rules look at: a tree has hundreds of times as many objects."""

    is_empty: bool
    docstring: str | None
    imports: tuple[ast.Import | ast.ImportFrom, ...]
    functions: tuple[Function, ...]
    definitions: tuple[Definition, ...]


@cache
def outline(path: Path) -> Outline:
    """Return the outline of a file."""
    tree = parse(path)
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    statements = list(_statements(tree))
    return Outline(
        not tree.body,
        ast.get_docstring(tree),
        tuple(one for one in statements if isinstance(one, ast.Import | ast.ImportFrom)),
        tuple(
            Function(one.name, (one.end_lineno or 0) - one.lineno)
            for one in statements
            if isinstance(one, kinds)
        ),
        tuple(
            Definition(one.name, bool(one.decorator_list), tuple(_members(one)))
            for one in tree.body
            if isinstance(one, kinds | ast.ClassDef)
        ),
    )


def _members(node: ast.AST) -> Iterator[str]:
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    if isinstance(node, ast.ClassDef):
        yield from (one.name for one in node.body if isinstance(one, kinds))


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Iterate over all statements of a tree; most of its nodes are expressions."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, name, None)
            if isinstance(inner, list):  # the body of a lambda is none
                yield from inner
                waiting += inner


def parse(path: Path) -> ast.Module:
    """Return the tree of a file.

    Before Python 3.11.8 the parser fails now and then, when garbage is looked for meanwhile
    (gh-106905): then it tries again.
    """
    text = path.read_text()
    try:
        return ast.parse(text)
    except SystemError:
        return ast.parse(text)
