"""One test for many items: a test of pytest's own costs more than most checks of an item."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


def _name(item: Any) -> str:
    return str(getattr(item, "__name__", item))


def of_each(
    items: Iterable[T], name: Callable[[T], str] = _name
) -> Callable[[Callable[[T], None]], Callable[[], None]]:
    """Make a test of a check of one item; the first that fails is named in the error's note."""

    def decorate(check: Callable[[T], None]) -> Callable[[], None]:
        def check_each() -> None:
            for item in items:
                try:
                    check(item)
                except BaseException as error:
                    error.add_note(f"with {name(item)}")
                    raise

        check_each.__name__, check_each.__doc__ = check.__name__, check.__doc__
        check_each.__dict__.update(vars(check))  # marks
        return check_each

    return decorate
