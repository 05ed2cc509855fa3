"""Where an answer of the matrix differs from Kafka's, besides what differs on the whole wire.

A list that may only shrink: the test fails for an entry that covers nothing.
"""

from __future__ import annotations

from tests.differential import differences
from tests.differential.answers import Difference
from tests.differential.differences import Known

KNOWN: tuple[Known, ...] = (
    Known(
        "Kafka prints the request it has refused: the object in memory, its connection, session "
        "and buffer. Ours says what the code means.",
        ".*",
        r".*\.error_message",
        theirs=r"['\"]Request Request\((?s:.*) needs \w+ permission\.['\"]",
        ours="'Cluster authorization failed.'",
    ),
    Known(
        "Kafka tells the id also of a topic that is refused, and so that it is there.",
        "AlterShareGroupOffsets",
        r"\.responses\[.* may-topic\]",
        theirs="absent|.* error_code=29, .*",
        ours="absent|.* error_code=29, .*",
    ),
    Known(
        "A topic that asking creates is in the answer at once; Kafka lets the client ask again.",
        "Metadata",
        r"\.topics\[.*new\].*",
    ),
)


def known(found: Difference) -> Known | None:
    """Return the entry that covers a difference, None when it is news."""
    ours = next((one for one in KNOWN if one.covers(found)), None)
    return ours or differences.known(found)
