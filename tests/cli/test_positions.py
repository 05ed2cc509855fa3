"""Positions as the command line has them."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, cast

import click
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo

from odradek.cli.client import Admin, Connection
from odradek.cli.positions import END, Kind, Position, PositionType, resolve
from odradek.cli.refusals import CommandError


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("beginning", Position(Kind.BEGINNING)),
        ("end", Position(Kind.END)),
        ("42", Position(Kind.OFFSET, 42)),
        ("-10", Position(Kind.LAST, 10)),
        ("@1700000000123", Position(Kind.TIMESTAMP, 1_700_000_000_123)),
        ("@2023-11-14T22:13:20.123Z", Position(Kind.TIMESTAMP, 1_700_000_000_123)),
        ("@2023-11-14T23:13:20+01:00", Position(Kind.TIMESTAMP, 1_700_000_000_000)),
        ("@2023-11-14", Position(Kind.TIMESTAMP, 1_699_920_000_000)),
    ],
)
def test_a_position_is_read(text: str, position: Position) -> None:
    assert PositionType().convert(text, None, None) == position


@pytest.mark.parametrize("text", ["", "start", "4.2", "--5", "@", "@soon", "2023-11-14", "9" * 19])
def test_a_text_that_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is none of: beginning, end, an offset"):
        PositionType().convert(text, None, None)


class _Elections:
    """A client whose partitions have no leader for some requests."""

    def __init__(self, code: int, count: int) -> None:
        self.code, self.count = code, count

    def list_offsets(self, wanted: Mapping[TopicPartition, Any], **_: Any) -> Any:
        self.count -= 1
        made: dict[TopicPartition, Future[ListOffsetsResultInfo]] = {}
        for one in wanted:
            made[one] = Future()
            if self.count >= 0:
                made[one].set_exception(KafkaException(KafkaError(self.code)))
            else:
                made[one].set_result(ListOffsetsResultInfo(7, -1, 0))
        return made

    def poll(self, timeout: float) -> None:
        pass


def _end(client: _Elections) -> int:
    admin = Admin(Connection({"bootstrap.servers": "nowhere"}), cast(AdminClient, client))
    return resolve(admin, {"prices": [0]}, END)["prices", 0]


@pytest.mark.parametrize(
    "code", [KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE]
)
def test_offsets_are_requested_again_while_a_new_topic_has_no_leader(code: int) -> None:
    assert _end(_Elections(code, count=3)) == 7


def test_offsets_that_a_broker_refuses_are_not_requested_again() -> None:
    client = _Elections(KafkaError.TOPIC_AUTHORIZATION_FAILED, count=1)
    with pytest.raises(CommandError):
        _end(client)
    assert client.count == 0
