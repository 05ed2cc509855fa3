"""A check of each item is one test, which names the item that fails."""

from __future__ import annotations

import pytest

from tests.support.each import of_each


def test_the_first_item_that_fails_is_named() -> None:
    seen = []

    @of_each([1, 2, 0, 3])
    def test_it(item: int) -> None:
        seen.append(1 / item)

    with pytest.raises(ZeroDivisionError) as raised:
        test_it()
    assert raised.value.__notes__ == ["with 0"]
    assert seen == [1.0, 0.5]


def test_a_test_keeps_its_name_and_marks() -> None:
    @of_each([int])
    @pytest.mark.slow
    def test_it(item: type) -> None:
        """It is good."""

    assert (test_it.__name__, test_it.__doc__) == ("test_it", "It is good.")
    assert [mark.name for mark in vars(test_it)["pytestmark"]] == ["slow"]
