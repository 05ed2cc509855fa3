"""What passes for equal between two brokers, and what does not."""

from __future__ import annotations

import pytest

from odradek.protocol.compiler import encode
from odradek.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from tests.differential.answers import Difference, Pairs
from tests.differential.wire import Outcome

OURS, THEIRS = bytes([1] * 16), bytes([2] * 16)
ONE, OTHER = bytes([3] * 16), bytes([4] * 16)


def differences(pairs: Pairs, ours: list[bytes], theirs: list[bytes]) -> list[Difference]:
    outcomes = [
        Outcome(
            bytes(5)  # a correlation id, and no tags
            + encode(
                DeleteTopicsResponse(
                    throttle_time_ms=0,
                    responses=[
                        DeletableTopicResult(
                            name=None, topic_id=one, error_code=100, error_message=None
                        )
                        for one in ids
                    ],
                ),
                6,
            ),
            "open",
        )
        for ids in (ours, theirs)
    ]
    return pairs.differences("DeleteTopics", 6, *outcomes)


def test_ids_that_brokers_make_up_stand_for_each_other_from_then_on() -> None:
    pairs = Pairs(1, 2)
    assert not differences(pairs, [OURS], [THEIRS])
    assert not differences(pairs, [OURS], [THEIRS])
    assert differences(pairs, [OURS], [OTHER])
    assert differences(pairs, [ONE], [THEIRS])


def test_ids_that_came_with_the_request_stand_for_themselves_in_any_order() -> None:
    pairs = Pairs(1, 2)
    assert not differences(pairs, [ONE, OTHER], [OTHER, ONE])
    assert not differences(pairs, [ONE], [ONE])
    assert not differences(pairs, [OTHER, OURS], [THEIRS, OTHER])
    assert not differences(pairs, [OURS], [THEIRS])


@pytest.mark.parametrize("theirs", [[], [THEIRS, OTHER]])
def test_an_item_more_or_less_is_a_difference(theirs: list[bytes]) -> None:
    assert differences(Pairs(1, 2), [OURS], theirs)
