"""What is drawn can be sent: every API at every version, and the same again from the same seed."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from odradek.broker.api_table import APIS, Api
from odradek.protocol.compiler import decode, encode
from odradek.protocol.messages import message_classes
from tests import profiles
from tests.differential.differences import KNOWN
from tests.differential.drawing import Drawing
from tests.differential.play import versions_of
from tests.differential.world import World

pytestmark = pytest.mark.slow

SEEDS = profiles.examples(60)


def drawn(api: Api, version: int, seed: int) -> Any:
    return Drawing(Random(seed), World(seed)).request(message_classes(api.name)[0], version)


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_whatever_is_drawn_can_be_encoded_and_read(api: Api) -> None:
    cls = message_classes(api.name)[0]
    for version in versions_of(api):
        for seed in range(SEEDS):
            request = drawn(api, version, seed)
            data = encode(request, version)
            assert encode(decode(cls, version, data), version) == data


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_a_seed_draws_the_same_again(api: Api) -> None:
    version = api.last
    requests = [drawn(api, version, seed) for seed in range(SEEDS)]
    assert requests == [drawn(api, version, seed) for seed in range(SEEDS)]
    plain = not any(vars(type(requests[0])).get("__slots__", ()))
    assert plain or len({repr(one) for one in requests}) > 1


def test_each_difference_has_a_reason_of_its_own() -> None:
    for one in KNOWN:
        assert one.reason.endswith(".")
    assert len(set(KNOWN)) == len(KNOWN)
