"""Imports a job of the pipeline for its help, on a machine without the packages of the pipeline.

The modules of the pipeline name Spark's classes and functions as they are imported, and use them
only as they run. For the help, which runs nothing, any class can stand in for them.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

# The packages of the extra `pipeline`, and those that come with them.
PACKAGES = frozenset({"pyspark", "py4j", "pyarrow", "pandas", "delta"})


def import_for_help(name: str) -> ModuleType:
    """Import a module whose command is only asked for its help."""
    with _standing_in():
        return importlib.import_module(name)


class _AnyClass(type):
    """A class that has every attribute, and can be called: all give such a class again."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _any_class(name)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return _any_class(cls.__name__)


def _any_class(name: str) -> Any:
    return _AnyClass(name, (), {})


class _StandIns(MetaPathFinder, Loader):
    """Finds the packages, and loads modules in which each name is some class."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in PACKAGES:
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _AnyModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: its names are made when they are asked for."""


class _AnyModule(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _any_class(name)


@contextmanager
def _standing_in() -> Iterator[None]:
    before = set(sys.modules)
    finder = _StandIns()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in set(sys.modules) - before:
            # Modules that were imported with stand-ins are of no use to a job that runs.
            if name.partition(".")[0] in PACKAGES or name.startswith("odradek.pipeline."):
                del sys.modules[name]
