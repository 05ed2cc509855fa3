"""The reason why work that is repeated cannot be done: how it is logged."""

from __future__ import annotations

import logging

import pytest

from odradek.broker.errors import MetadataError
from odradek.broker.shared.obstacle import Obstacle
from odradek.storage.errors import NotLeader

_LOGGER = logging.getLogger(__name__)


@pytest.mark.parametrize(
    ("error", "level", "has_traceback"),
    [
        (NotLeader("another broker has orders-0"), logging.INFO, False),
        (MetadataError("the catalog does not answer"), logging.ERROR, False),
        (KeyError("orders"), logging.ERROR, True),
    ],
)
def test_logs_a_reason_once_and_as_loud_as_it_is_unexpected(
    error: Exception, level: int, has_traceback: bool, caplog: pytest.LogCaptureFixture
) -> None:
    obstacle = Obstacle(_LOGGER, "store shared logs")
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            obstacle.note(error)
    [line] = caplog.records
    assert (line.levelno, bool(line.exc_info)) == (level, has_traceback)
    assert obstacle.reason
    obstacle.end()
    assert not obstacle.reason
